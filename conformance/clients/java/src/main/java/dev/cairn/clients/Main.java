package dev.cairn.clients;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.ClientBuilder;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import javax.net.ssl.SSLException;

/** jetcd against a server; {@code clients_test.go} says how it is called. */
public final class Main {
    private static final Map<String, Area> AREAS = new TreeMap<>(Map.of(
            "kv", Data::keys, "txn", Data::transactions, "watch", Data::watches,
            "lease", Coordination::leases, "lock", Coordination::locks, "auth", Access::auth, "follow", Data::follow));

    /** What one area of the API is tried with. */
    interface Area {
        void run() throws Exception;
    }

    private Main() {}

    public static void main(String[] areas) {
        boolean failed = false;
        for (String area : areas) {
            try {
                AREAS.get(area).run();
                System.out.println("ok " + area);
            } catch (Throwable error) {
                failed = true;
                System.out.println("failed " + area + ": " + String.valueOf(error).replace('\n', ' '));
                error.printStackTrace();
            }
        }
        System.exit(failed ? 1 : 0);
    }

    /** A client of the server under test, over TLS if the environment names files. */
    static Client connect() throws SSLException {
        return builder().build();
    }

    static Client connect(String user, String password) throws SSLException {
        return builder().user(bytes(user)).password(bytes(password)).build();
    }

    private static ClientBuilder builder() throws SSLException {
        Map<String, String> env = System.getenv();
        // Refusals must come back at once.
        ClientBuilder builder = Client.builder().retryMaxAttempts(1);
        if (!env.containsKey("CA")) {
            return builder.endpoints("http://" + env.get("ENDPOINT"));
        }
        return builder.endpoints("https://" + env.get("ENDPOINT")).sslContext(context -> context
                .trustManager(new File(env.get("CA")))
                .keyManager(new File(env.get("CERT")), new File(env.get("KEY"))));
    }

    static ByteSequence bytes(String text) {
        return ByteSequence.from(text, StandardCharsets.UTF_8);
    }
}
