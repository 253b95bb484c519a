package dev.cairn.clients;

import static dev.cairn.clients.Check.equal;
import static dev.cairn.clients.Check.get;
import static dev.cairn.clients.Check.refused;
import static dev.cairn.clients.Main.bytes;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.KV;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.kv.TxnResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.DeleteOption;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Keys, transactions and watches. */
final class Data {
    private Data() {}

    static void keys() throws Exception {
        try (Client client = Main.connect()) {
            KV kv = client.getKVClient();
            get(kv.put(bytes("jv/kv/a"), bytes("1")));
            get(kv.put(bytes("jv/kv/b"), ByteSequence.from(new byte[] {0, (byte) 255})));
            long revision = get(kv.put(bytes("jv/kv/a"), bytes("2"))).getHeader().getRevision();
            equal(get(kv.get(bytes("jv/kv/a"))).getKvs().get(0).getVersion(), 2L);
            equal(get(kv.get(bytes("jv/kv/none"))).getCount(), 0L);
            equal(value(kv, "jv/kv/a", GetOption.builder().withRevision(revision - 1).build()), "1");
            GetOption backwards = GetOption.builder().isPrefix(true)
                    .withSortField(GetOption.SortTarget.KEY).withSortOrder(GetOption.SortOrder.DESCEND).build();
            equal(get(kv.get(bytes("jv/kv/"), backwards)).getKvs().stream().map(pair -> pair.getKey().toString()).toList(),
                    List.of("jv/kv/b", "jv/kv/a"));
            equal(get(kv.get(bytes("jv/kv/"), GetOption.builder().isPrefix(true).withLimit(1).build())).isMore(), true);
            equal(get(kv.put(bytes("jv/kv/a"), bytes("3"), PutOption.builder().withPrevKV().build())).getPrevKv().getValue(), bytes("2"));
            get(kv.put(bytes("jv/kv/big"), bytes("x".repeat(1_000_000))));
            equal(get(kv.get(bytes("jv/kv/big"))).getKvs().get(0).getValue().size(), 1_000_000);
            equal(get(kv.delete(bytes("jv/kv/"), DeleteOption.builder().isPrefix(true).build())).getDeleted(), 3L);
            get(kv.compact(revision));
            refused(kv.get(bytes("jv/kv/a"), GetOption.builder().withRevision(1).build()), "required revision has been compacted");
            equal(get(client.getClusterClient().listMember()).getMembers().size(), 1);
        }
    }

    static void transactions() throws Exception {
        try (Client client = Main.connect()) {
            KV kv = client.getKVClient();
            equal(claim(kv, "1").isSucceeded(), true);
            TxnResponse second = claim(kv, "2");
            equal(second.isSucceeded(), false);
            equal(second.getGetResponses().get(0).getKvs().get(0).getValue(), bytes("1"));
            TxnResponse both = get(kv.txn()
                    .If(new Cmp(bytes("jv/txn/a"), Cmp.Op.EQUAL, CmpTarget.value(bytes("1"))),
                            new Cmp(bytes("jv/txn/a"), Cmp.Op.GREATER, CmpTarget.createRevision(0)))
                    .Then(Op.delete(bytes("jv/txn/a"), DeleteOption.DEFAULT), put("jv/txn/b", "3"),
                            Op.get(bytes("jv/txn/b"), GetOption.DEFAULT),
                            Op.txn(new Cmp[] {absent("jv/txn/c")}, new Op[] {put("jv/txn/c", "4")}, new Op[0]))
                    .commit());
            equal(both.isSucceeded(), true);
            equal(both.getGetResponses().get(0).getKvs().get(0).getValue(), bytes("3"));
            equal(value(kv, "jv/txn/c", GetOption.DEFAULT), "4");
            refused(kv.txn().Then(put("jv/txn/d", "1"), put("jv/txn/d", "2")).commit(), "duplicate key given in txn request");
        }
    }

    private static TxnResponse claim(KV kv, String value) throws Exception {
        return get(kv.txn().If(absent("jv/txn/a")).Then(put("jv/txn/a", value))
                .Else(Op.get(bytes("jv/txn/a"), GetOption.DEFAULT)).commit());
    }

    static Cmp absent(String key) {
        return new Cmp(bytes(key), Cmp.Op.EQUAL, CmpTarget.version(0));
    }

    static Op put(String key, String value) {
        return Op.put(bytes(key), bytes(value), PutOption.DEFAULT);
    }

    static String value(KV kv, String key, GetOption option) throws Exception {
        return get(kv.get(bytes(key), option)).getKvs().get(0).getValue().toString();
    }

    static void watches() throws Exception {
        try (Client client = Main.connect()) {
            KV kv = client.getKVClient();
            long before = get(kv.put(bytes("jv/watch/a"), bytes("0"))).getHeader().getRevision();
            LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
            WatchOption since = WatchOption.builder().isPrefix(true).withRevision(before).withPrevKV(true).build();
            try (Watch.Watcher ignored = client.getWatchClient().watch(bytes("jv/watch/"), since, changes -> changes.getEvents().forEach(
                    change -> seen.add(change.getEventType() + " " + change.getKeyValue().getKey() + " " + change.getPrevKV().getValue())))) {
                get(kv.put(bytes("jv/watch/b"), bytes("1")));
                get(kv.delete(bytes("jv/watch/a")));
                equal(seen.poll(10, TimeUnit.SECONDS), "PUT jv/watch/a ");
                equal(seen.poll(10, TimeUnit.SECONDS), "PUT jv/watch/b ");
                equal(seen.poll(10, TimeUnit.SECONDS), "DELETE jv/watch/a 0");
            }
            get(kv.compact(get(kv.put(bytes("jv/watch/a"), bytes("1"))).getHeader().getRevision()));
            LinkedBlockingQueue<String> errors = new LinkedBlockingQueue<>();
            WatchOption lost = WatchOption.builder().withRevision(1).build();
            try (Watch.Watcher ignored = client.getWatchClient().watch(bytes("jv/watch/a"), lost, changes -> {}, error -> errors.add(error.getMessage()))) {
                String error = errors.poll(10, TimeUnit.SECONDS);
                equal(error != null && error.contains("required revision has been compacted"), true);
            }
        }
    }

    /** Prints each event below follow/, until the one that ends it. A watch that the package does not resume itself begins again behind them. */
    static void follow() throws Exception {
        long[] next = {Long.parseLong(System.getenv("FROM"))};
        try (Client client = Main.connect()) {
            for (boolean isOver = false; !isOver; ) {
                CompletableFuture<Boolean> ended = new CompletableFuture<>();
                WatchOption option = WatchOption.builder().isPrefix(true).withRevision(next[0]).build();
                Watch.Listener listener = Watch.listener(
                        response -> response.getEvents().forEach(event -> {
                            System.out.println("event " + event.getKeyValue().getModRevision() + " " + event.getKeyValue().getKey());
                            next[0] = event.getKeyValue().getModRevision() + 1;
                            if (event.getKeyValue().getKey().toString().equals("follow/end")) {
                                ended.complete(true);
                            }
                        }),
                        error -> ended.complete(false));
                try (Watch.Watcher watcher = client.getWatchClient().watch(bytes("follow/"), option, listener)) {
                    isOver = ended.get();
                }
                if (!isOver) {
                    System.out.println("again");
                    Thread.sleep(100);
                }
            }
        }
    }
}
