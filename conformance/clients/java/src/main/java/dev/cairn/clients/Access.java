package dev.cairn.clients;

import static dev.cairn.clients.Check.equal;
import static dev.cairn.clients.Check.get;
import static dev.cairn.clients.Check.refused;
import static dev.cairn.clients.Main.bytes;

import io.etcd.jetcd.Auth;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.KV;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.auth.Permission;
import io.etcd.jetcd.options.GetOption;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Users, roles and permissions. */
final class Access {
    private Access() {}

    static void auth() throws Exception {
        try (Client client = Main.connect()) {
            Auth auth = client.getAuthClient();
            get(auth.userAdd(bytes("root"), bytes("secret")));
            get(auth.roleAdd(bytes("root")));
            get(auth.userGrantRole(bytes("root"), bytes("root")));
            get(auth.userAdd(bytes("alice"), bytes("wonder")));
            get(auth.roleAdd(bytes("reader")));
            get(auth.roleGrantPermission(bytes("reader"), bytes("jv/auth/"), bytes("jv/auth0"), Permission.Type.READWRITE));
            get(auth.userGrantRole(bytes("alice"), bytes("reader")));
            equal(get(auth.userGet(bytes("alice"))).getRoles().toString(), "[reader]");
            equal(get(auth.roleGet(bytes("reader"))).getPermissions().size(), 1);
            get(auth.authEnable());
            try {
                // A certificate without a common name stands for a user without a name, whom nobody knows.
                refused(client.getKVClient().get(bytes("jv/auth/a")),
                        System.getenv("CA") == null ? "user name is empty" : "permission denied");
                alice();
            } finally {
                try (Client root = Main.connect("root", "secret")) {
                    get(root.getAuthClient().authDisable());
                }
            }
            equal(Data.value(client.getKVClient(), "jv/auth/a", GetOption.DEFAULT), "1");
        }
    }

    private static void alice() throws Exception {
        try (Client wrong = Main.connect("alice", "wrong")) {
            refused(wrong.getKVClient().get(bytes("jv/auth/a")), "invalid user ID or password");
        }
        try (Client alice = Main.connect("alice", "wonder")) {
            KV kv = alice.getKVClient();
            get(kv.put(bytes("jv/auth/a"), bytes("1")));
            equal(Data.value(kv, "jv/auth/a", GetOption.DEFAULT), "1");
            refused(kv.get(bytes("jv/other")), "permission denied");
            refused(kv.get(bytes("jv/"), GetOption.builder().isPrefix(true).build()), "permission denied");
            refused(kv.txn().If(Data.absent("jv/auth/none")).Then(Data.put("jv/other", "1")).commit(), "permission denied");
            refused(alice.getAuthClient().userList(), "permission denied");
            LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
            try (Watch.Watcher ignored = alice.getWatchClient().watch(bytes("jv/auth/b"),
                    changes -> changes.getEvents().forEach(change -> seen.add(change.getKeyValue().getValue().toString())))) {
                // The watch is asked for in the background.
                for (int i = 0; i < 50 && seen.isEmpty(); i++) {
                    get(kv.put(bytes("jv/auth/b"), bytes("2")));
                    Thread.sleep(100);
                }
                equal(seen.poll(10, TimeUnit.SECONDS), "2");
            }
        }
    }
}
