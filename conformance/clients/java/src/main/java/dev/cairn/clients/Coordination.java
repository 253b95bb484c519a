package dev.cairn.clients;

import static dev.cairn.clients.Check.equal;
import static dev.cairn.clients.Check.get;
import static dev.cairn.clients.Check.refused;
import static dev.cairn.clients.Main.bytes;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.Election;
import io.etcd.jetcd.KV;
import io.etcd.jetcd.Lease;
import io.etcd.jetcd.Lock;
import io.etcd.jetcd.election.CampaignResponse;
import io.etcd.jetcd.election.LeaderResponse;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.lease.LeaseTimeToLiveResponse;
import io.etcd.jetcd.options.LeaseOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.support.CloseableClient;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Leases, and the server's own locks and elections. */
final class Coordination {
    private Coordination() {}

    static void leases() throws Exception {
        try (Client client = Main.connect()) {
            KV kv = client.getKVClient();
            Lease leases = client.getLeaseClient();
            long lease = get(leases.grant(60)).getID();
            get(kv.put(bytes("jv/lease/a"), bytes("1"), PutOption.builder().withLeaseId(lease).build()));
            LeaseTimeToLiveResponse info = get(leases.timeToLive(lease, LeaseOption.builder().withAttachedKeys().build()));
            equal(info.getGrantedTTL(), 60L);
            equal(info.getKeys(), List.of(bytes("jv/lease/a")));
            equal(get(leases.keepAliveOnce(lease)).getTTL(), 60L);
            get(leases.revoke(lease));
            equal(get(kv.get(bytes("jv/lease/a"))).getCount(), 0L);
            refused(kv.put(bytes("jv/lease/a"), bytes("1"), PutOption.builder().withLeaseId(lease).build()), "requested lease not found");

            // One that is kept alive outlives its time, one that is not is lost.
            // A busy machine may take seconds until it is kept alive. Five renewals take longer than it lasts.
            long kept = get(leases.grant(5)).getID();
            long lost = get(leases.grant(2)).getID();
            get(kv.put(bytes("jv/lease/kept"), bytes("1"), PutOption.builder().withLeaseId(kept).build()));
            get(kv.put(bytes("jv/lease/lost"), bytes("1"), PutOption.builder().withLeaseId(lost).build()));
            CountDownLatch renewals = new CountDownLatch(5);
            try (CloseableClient ignored = leases.keepAlive(kept, new Latch<LeaseKeepAliveResponse>(renewals))) {
                for (int i = 0; i < 100 && get(kv.get(bytes("jv/lease/lost"))).getCount() > 0; i++) {
                    Thread.sleep(200);
                }
                equal(get(kv.get(bytes("jv/lease/lost"))).getCount(), 0L);
                equal(renewals.await(20, TimeUnit.SECONDS), true);
                equal(get(kv.get(bytes("jv/lease/kept"))).getCount(), 1L);
            }
            get(leases.revoke(kept));
        }
    }

    /** Counts down with each message. */
    private record Latch<T>(CountDownLatch count) implements StreamObserver<T> {
        @Override
        public void onNext(T message) {
            count.countDown();
        }

        @Override
        public void onError(Throwable error) {
            error.printStackTrace();
        }

        @Override
        public void onCompleted() {}
    }

    static void locks() throws Exception {
        try (Client client = Main.connect()) {
            AtomicInteger inside = new AtomicInteger();
            AtomicInteger total = new AtomicInteger();
            List<CompletableFuture<Void>> workers = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                workers.add(CompletableFuture.runAsync(() -> {
                    try {
                        work(client, inside, total);
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                }, task -> new Thread(task).start()));
            }
            for (CompletableFuture<Void> worker : workers) {
                get(worker);
            }
            equal(total.get(), 20);
            expiry(client);
            elections(client);
        }
    }

    private static void work(Client client, AtomicInteger inside, AtomicInteger total) throws Exception {
        long lease = get(client.getLeaseClient().grant(60)).getID();
        Lock locks = client.getLockClient();
        for (int i = 0; i < 5; i++) {
            ByteSequence key = get(locks.lock(bytes("jv/lock"), lease)).getKey();
            equal(inside.incrementAndGet(), 1);
            Thread.sleep(5);
            inside.decrementAndGet();
            total.incrementAndGet();
            get(locks.unlock(key));
        }
        get(client.getLeaseClient().revoke(lease));
    }

    /** Who waits gets the lock when its owner's lease is over. */
    private static void expiry(Client client) throws Exception {
        Lock locks = client.getLockClient();
        get(locks.lock(bytes("jv/expiry"), get(client.getLeaseClient().grant(2)).getID()));
        long lease = get(client.getLeaseClient().grant(60)).getID();
        get(locks.lock(bytes("jv/expiry"), lease));
        refused(locks.lock(bytes("jv/expiry"), 4711), "requested lease not found");
        get(client.getLeaseClient().revoke(lease));
    }

    private static void elections(Client client) throws Exception {
        Election elections = client.getElectionClient();
        LinkedBlockingQueue<String> leaders = new LinkedBlockingQueue<>();
        long lease = get(client.getLeaseClient().grant(60)).getID();
        long other = get(client.getLeaseClient().grant(60)).getID();
        CampaignResponse first = get(elections.campaign(bytes("jv/elect"), lease, bytes("one")));
        elections.observe(bytes("jv/elect"), new Election.Listener() {
            @Override
            public void onNext(LeaderResponse answer) {
                leaders.add(answer.getKv().getValue().toString());
            }

            @Override
            public void onError(Throwable error) {
                leaders.add(error.toString());
            }

            @Override
            public void onCompleted() {}
        });
        equal(leaders.poll(10, TimeUnit.SECONDS), "one");
        get(elections.proclaim(first.getLeader(), bytes("still one")));
        equal(leaders.poll(10, TimeUnit.SECONDS), "still one");
        CompletableFuture<CampaignResponse> second = elections.campaign(bytes("jv/elect"), other, bytes("two"));
        equal(get(elections.leader(bytes("jv/elect"))).getKv().getValue(), bytes("still one"));
        get(elections.resign(first.getLeader()));
        get(second);
        equal(leaders.poll(10, TimeUnit.SECONDS), "two");
        get(client.getLeaseClient().revoke(lease));
        get(client.getLeaseClient().revoke(other));
    }
}
