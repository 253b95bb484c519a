package dev.cairn.clients;

import java.util.Objects;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Waiting for answers and comparing them. */
final class Check {
    private static final int ANSWER_MAX_SECONDS = 20;

    private Check() {}

    static <T> T get(Future<T> answer) throws Exception {
        return answer.get(ANSWER_MAX_SECONDS, TimeUnit.SECONDS);
    }

    static void equal(Object got, Object want) {
        if (!Objects.equals(got, want)) {
            throw new AssertionError(got + ", not " + want);
        }
    }

    /** The answer must be an error with the text. */
    static void refused(Future<?> answer, String text) throws Exception {
        try {
            get(answer);
        } catch (Exception error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (String.valueOf(cause.getMessage()).contains(text)) {
                    return;
                }
            }
            throw error;
        }
        throw new AssertionError("no refusal with: " + text);
    }
}
