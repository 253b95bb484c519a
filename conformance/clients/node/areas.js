// What an application does with the package etcd3, one function per area.
'use strict';

const { deepStrictEqual: equal, rejects } = require('assert');
const { setTimeout: sleep } = require('timers/promises');
const { EtcdLockFailedError, Range } = require('etcd3');

// Runs the steps with a client that is closed afterwards.
async function using(client, steps) {
  try {
    return await steps(client);
  } finally {
    client.close();
  }
}

function next(emitter, event) {
  return new Promise((resolve, reject) => {
    emitter.once(event, resolve);
    setTimeout(() => reject(new Error(`no ${event}`)), 15_000).unref();
  });
}

exports.kv = (connect) => using(connect(), async (client) => {
  await client.put('js/kv/a').value('1');
  await client.put('js/kv/b').value(Buffer.from([0, 255]));
  await client.put('js/kv/a').value('2');
  equal(await client.get('js/kv/a').string(), '2');
  equal(await client.get('js/kv/none').string(), null);
  equal(await client.get('js/kv/b').buffer(), Buffer.from([0, 255]));
  equal(await client.getAll().prefix('js/kv/').sort('Key', 'Descend').keys(), ['js/kv/b', 'js/kv/a']);
  equal(await client.getAll().prefix('js/kv/').limit(1).count(), 2);
  const before = await client.put('js/kv/a').value('3').getPrevious();
  equal([before.value.toString(), before.version], ['2', '2']);
  const { header } = await client.get('js/kv/a').exec();
  equal(await client.get('js/kv/a').revision(Number(header.revision) - 1).string(), '2');
  equal((await client.delete().key('js/kv/a')).deleted, '1');
  equal((await client.delete().key('js/kv/a')).deleted, '0');
  await client.put('js/kv/big').value(Buffer.alloc(1_000_000, 'x'));
  equal((await client.get('js/kv/big').buffer()).length, 1_000_000);
  equal((await client.delete().prefix('js/kv/')).deleted, '2');
  await client.kv.compact({ revision: header.revision });
  await rejects(client.get('js/kv/a').revision(1).exec(), /required revision has been compacted/);
  equal((await client.cluster.memberList({})).members.map((member) => member.name), ['default']);
});

exports.txn = (connect) => using(connect(), async (client) => {
  const claim = () => client.if('js/txn/a', 'Version', '==', 0)
    .then(client.put('js/txn/a').value('1')).else(client.get('js/txn/a')).commit();
  equal((await claim()).succeeded, true);
  const second = await claim();
  equal([second.succeeded, second.responses[0].response_range.kvs[0].value.toString()], [false, '1']);
  const both = await client.if('js/txn/a', 'Value', '==', '1').and('js/txn/a', 'Create', '>', 0)
    .then(client.delete().key('js/txn/a'), client.put('js/txn/b').value('2'), client.get('js/txn/b')).commit();
  equal(both.responses[2].response_range.kvs[0].value.toString(), '2');
  await rejects(
    client.if('js/txn/a', 'Version', '==', 0).then(client.put('js/txn/c').value('1'), client.put('js/txn/c').value('2')).commit(),
    /duplicate key given in txn request/);

  // Eight workers add to one number in transactions that are repeated on conflict.
  await client.put('js/txn/sum').value('0');
  await Promise.all(Array.from({ length: 8 }, () => client.stm({ retries: 100 }).transact(async (tx) => {
    const sum = await tx.get('js/txn/sum').number();
    await tx.put('js/txn/sum').value(sum + 1);
  })));
  equal(await client.get('js/txn/sum').number(), 8);
});

exports.watch = (connect) => using(connect(), async (client) => {
  const { header } = await client.put('js/watch/a').value('0');
  const watcher = await client.watch().prefix('js/watch/').startRevision(header.revision).withPreviousKV().create();
  const seen = [];
  const done = new Promise((resolve) => {
    watcher.on('put', (kv) => seen.push(`put ${kv.key} ${kv.value}`));
    watcher.on('delete', (kv, previous) => { seen.push(`delete ${kv.key} ${previous.value}`); resolve(); });
  });
  await client.put('js/watch/b').value('1');
  await client.delete().key('js/watch/a');
  await Promise.race([done, sleep(15_000)]);
  equal(seen, ['put js/watch/a 0', 'put js/watch/b 1', 'delete js/watch/a 0']);
  await watcher.cancel();

  const other = await client.watch().key('js/watch/c').create();
  const change = next(other, 'put');
  await client.put('js/watch/c').value('2');
  equal((await change).value.toString(), '2');
  await other.cancel();
});

exports.lease = (connect) => using(connect(), async (client) => {
  const lease = client.lease(60, { autoKeepAlive: false });
  await lease.put('js/lease/a').value('1');
  const id = await lease.grant();
  const info = await client.leaseClient.leaseTimeToLive({ ID: id, keys: true });
  equal([info.grantedTTL, info.keys.map(String)], ['60', ['js/lease/a']]);
  equal((await lease.keepaliveOnce()).TTL, '60');
  await lease.revoke();
  equal(await client.get('js/lease/a').string(), null);
  await rejects(client.put('js/lease/a').value('1').lease(id).exec(), /requested lease not found/);

  // One that keeps itself alive outlives its time, one that does not is lost.
  const kept = client.lease(2);
  const lost = client.lease(2, { autoKeepAlive: false });
  await kept.put('js/lease/kept').value('1');
  await lost.put('js/lease/lost').value('1');
  for (let i = 0; i < 100 && await client.get('js/lease/lost').string() !== null; i++) {
    await sleep(200);
  }
  equal(await client.getAll().prefix('js/lease/').keys(), ['js/lease/kept']);
  await kept.revoke();
});

// The package's lock: a key that a transaction creates under a lease; and its election.
exports.lock = (connect) => using(connect(), async (client) => {
  let inside = 0;
  let total = 0;
  const work = () => client.lock('js').do(async () => {
    equal(++inside, 1);
    await sleep(10);
    inside--;
    total++;
  });
  // Who does not get it is refused, and tries again.
  const persist = async () => {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof EtcdLockFailedError)) throw error;
        await sleep(5);
      }
    }
  };
  await Promise.all(Array.from({ length: 8 }, persist));
  equal([inside, total], [0, 8]);

  const election = client.election('js', 10);
  const first = election.campaign('one');
  await next(first, 'elected');
  equal(await election.leader(), 'one');
  const other = client.election('js', 10).campaign('two');
  const elected = next(other, 'elected');
  await first.resign();
  await elected;
  equal(await election.leader(), 'two');
  await other.resign();
});

exports.auth = (connect) => using(connect(), async (client) => {
  await client.user('root').create('secret');
  await client.role('root').create();
  await client.user('root').addRole('root');
  await client.user('alice').create('wonder');
  await client.role('reader').create();
  await client.role('reader').grant({ permission: 'Readwrite', range: Range.prefix('js/auth/') });
  await client.user('alice').addRole('reader');
  await client.auth.authEnable();
  try {
    // A certificate without a common name stands for a user without a name, whom nobody knows.
    await rejects(client.get('js/auth/a').string(), process.env.CA ? /permission denied/ : /user name is empty/);
    await using(connect({ username: 'alice', password: 'wrong' }), (wrong) =>
      rejects(wrong.get('js/auth/a').string(), /invalid user ID or password/));
    await using(connect({ username: 'alice', password: 'wonder' }), async (alice) => {
      await alice.put('js/auth/a').value('1');
      equal(await alice.get('js/auth/a').string(), '1');
      await rejects(alice.get('js/other').string(), /permission denied/);
      await rejects(alice.getAll().all(), /permission denied/);
      await rejects(alice.if('js/auth/a', 'Version', '>', 0).then(alice.put('js/other').value('1')).commit(), /permission denied/);
      const watcher = await alice.watch().key('js/auth/b').create();
      const change = next(watcher, 'put');
      await alice.put('js/auth/b').value('2');
      equal((await change).value.toString(), '2');
      await watcher.cancel();
    });
  } finally {
    await using(connect({ username: 'root', password: 'secret' }), (root) => root.auth.authDisable());
  }
  equal(await client.get('js/auth/a').string(), '1');
});
