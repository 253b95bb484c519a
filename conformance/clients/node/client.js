// The package etcd3 against a server; `clients_test.go` says how it is called.
'use strict';

const fs = require('fs');
const { Etcd3 } = require('etcd3');
const areas = require('./areas');

// A client of the server under test, over TLS if the environment names files.
function connect(auth) {
  const options = { hosts: process.env.ENDPOINT, auth };
  if (process.env.CA) {
    options.hosts = 'https://' + process.env.ENDPOINT;
    options.credentials = {
      rootCertificate: fs.readFileSync(process.env.CA),
      privateKey: fs.readFileSync(process.env.KEY),
      certChain: fs.readFileSync(process.env.CERT),
    };
  }
  return new Etcd3(options);
}

async function main() {
  let failed = false;
  for (const area of process.argv.slice(2)) {
    try {
      await areas[area](connect);
      console.log(`ok ${area}`);
    } catch (error) {
      failed = true;
      console.log(`failed ${area}: ${String(error).replaceAll('\n', ' ')}`);
      console.error(error);
    }
  }
  process.exit(failed ? 1 : 0);
}

main();
