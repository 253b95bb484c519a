//! The crate `etcd-client` against a server; `clients_test.go` says how it is called.

mod access;
mod coordination;
mod data;

use std::env;
use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

/// Whatever goes wrong ends the area.
type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for area in env::args().skip(1) {
        let outcome = match area.as_str() {
            "kv" => data::keys().await,
            "txn" => data::transactions().await,
            "watch" => data::watches().await,
            "lease" => coordination::leases().await,
            "lock" => coordination::locks().await,
            "auth" => access::auth().await,
            _ => Err("no such area".into()),
        };
        match outcome {
            Ok(()) => println!("ok {area}"),
            Err(error) => {
                println!("failed {area}: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// A client of the server under test, over TLS if the environment names files.
async fn connect(user: Option<(&str, &str)>) -> Outcome<Client> {
    let endpoint = env::var("ENDPOINT")?;
    let mut options = ConnectOptions::new().with_timeout(Duration::from_secs(20));
    if let Some((name, password)) = user {
        options = options.with_user(name, password);
    }
    let Ok(authority) = env::var("CA") else {
        return Ok(Client::connect([format!("http://{endpoint}")], Some(options)).await?);
    };
    let identity = Identity::from_pem(fs::read(env::var("CERT")?)?, fs::read(env::var("KEY")?)?);
    let tls = TlsOptions::new()
        .domain_name("localhost")
        .ca_certificate(Certificate::from_pem(fs::read(authority)?))
        .identity(identity);
    Ok(Client::connect([format!("https://{endpoint}")], Some(options.with_tls(tls))).await?)
}

/// Two values must be the same.
fn equal<T: PartialEq + std::fmt::Debug>(got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{got:?}, not {want:?}").into()) }
}

/// The answer must be an error with the text.
fn refused<T>(answer: Result<T, etcd_client::Error>, text: &str) -> Outcome {
    match answer {
        Ok(_) => Err(format!("no refusal with: {text}").into()),
        Err(error) if error.to_string().contains(text) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
