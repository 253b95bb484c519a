//! The store that an archive is in: a directory, or a bucket of S3.

use crate::error::Error;
use crate::piece::PIECE_BYTES_MAX;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Name;
use object_store::{Certificate, ClientOptions, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig, WriteMultipart};
use sha2::{Digest, Sha256};
use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

/// Bytes of a large object that are sent at once.
const PART_BYTES: usize = 8 << 20;
/// Parts that are under way at the same time.
const PARTS: usize = 2;
/// How long the store may take to answer one request.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A request that failed is sent again for this long.
const RETRY: Duration = Duration::from_secs(10);
const RETRIES_MAX: usize = 3;

/// Where S3 is, if it is not Amazon's: what is not said here is taken from `AWS_*`.
#[derive(Clone, Debug, Default)]
pub struct S3 {
    /// URL of the server.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// Certificates of authorities to trust beside the system's, in PEM.
    pub authorities: Option<Vec<u8>>,
}

/// An object as a list names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its name within the archive.
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// The store of an archive. Cheap to clone.
#[derive(Clone)]
pub struct Vault {
    store: Arc<dyn ObjectStore>,
    prefix: Name,
    place: String,
}

impl Vault {
    /// The archive at a URL: `file:///DIRECTORY`, or `s3://BUCKET/PREFIX`. Makes the directory if `creates`.
    ///
    /// # Errors
    /// If the URL is of another kind, or the directory is not there.
    pub fn open(url: &str, s3: &S3, creates: bool) -> Result<Vault, Error> {
        if let Some(path) = url.strip_prefix("file://") {
            return Vault::directory(Path::new(path), creates);
        }
        let Some(rest) = url.strip_prefix("s3://") else {
            return Err(Error::Refused(format!("`{url}` is neither `file:///DIRECTORY` nor `s3://BUCKET/PREFIX`")));
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(Error::Refused(format!("`{url}` names no bucket")));
        }
        let prefix = Name::parse(prefix.trim_matches('/'))
            .map_err(|error| Error::Refused(format!("`{url}` cannot be the name of objects: {error}")))?;
        let place = url.trim_end_matches('/').to_string();
        let wrong = |error: object_store::Error| Error::Refused(format!("{place} cannot be used: {error}"));
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        if let Some(endpoint) = &s3.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let endpoint = s3.endpoint.clone().or_else(|| std::env::var("AWS_ENDPOINT_URL").ok());
        let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        if let Some(region) = &s3.region {
            builder = builder.with_region(region);
        }
        let mut client =
            ClientOptions::new().with_allow_http(is_plain).with_timeout(ANSWER_MAX).with_connect_timeout(CONNECT_MAX);
        if let Some(pem) = &s3.authorities {
            for certificate in Certificate::from_pem_bundle(pem).map_err(wrong)? {
                client = client.with_root_certificate(certificate);
            }
        }
        provide_tls();
        let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY, ..RetryConfig::default() };
        let builder = builder.with_client_options(client).with_retry(retry);
        // The store compares what arrives with this sum, and refuses what differs.
        let store = builder.with_checksum_algorithm(Checksum::SHA256).build().map_err(wrong)?;
        Ok(Vault { store: Arc::new(store), prefix, place })
    }

    fn directory(path: &Path, creates: bool) -> Result<Vault, Error> {
        if !path.is_absolute() {
            let shown = path.display();
            return Err(Error::Refused(format!("`file://{shown}` is not the path of a directory: write file:///PATH")));
        }
        if creates {
            // Values, and what users log in with, are in it.
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(Error::file("cannot make", path))?;
        }
        let place = format!("file://{}", path.display());
        let store = LocalFileSystem::new_with_prefix(path);
        let store = store.map_err(|error| Error::of_store(&place, "opening the directory", &error))?;
        Ok(Vault { store: Arc::new(store.with_fsync(true)), prefix: Name::default(), place })
    }

    /// The same archive on a store of a test.
    #[cfg(test)]
    pub(crate) fn of(store: Arc<dyn ObjectStore>) -> Vault {
        Vault { store, prefix: Name::default(), place: "the test's store".into() }
    }

    /// Its URL.
    pub fn place(&self) -> &str {
        &self.place
    }

    fn name(&self, name: &str) -> Name {
        name.split('/').fold(self.prefix.clone(), |whole, part| whole.join(part))
    }

    fn failed<'a>(&'a self, what: &'a str, name: &'a str) -> impl Fn(object_store::Error) -> Error + 'a {
        move |error| Error::of_store(&self.place, &format!("{what} `{name}`"), &error)
    }

    pub(crate) fn damaged(&self, name: &str, what: impl Into<String>) -> Error {
        Error::Damaged { place: self.place.clone(), name: name.into(), what: what.into() }
    }

    /// Writes an object whole, and reads it back: it is the same, or `is_as_good`, for another writer may have been there meanwhile.
    pub(crate) async fn put(&self, name: &str, bytes: Bytes, is_as_good: impl Fn(&Bytes) -> bool) -> Result<(), Error> {
        let payload = PutPayload::from(bytes.clone());
        self.store.put(&self.name(name), payload).await.map_err(self.failed("writing", name))?;
        match self.get(name).await? {
            Some(found) if found == bytes || is_as_good(&found) => Ok(()),
            _ => Err(self.damaged(name, "it is not what was written a moment ago")),
        }
    }

    /// Reads an object; `None` if there is none.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Bytes>, Error> {
        let found = match self.store.get(&self.name(name)).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(self.failed("reading", name))?,
        };
        if found.meta.size > PIECE_BYTES_MAX {
            return Err(self.damaged(name, format!("it has {} bytes", found.meta.size)));
        }
        Ok(Some(found.bytes().await.map_err(self.failed("reading", name))?))
    }

    /// Copies a file into an object, and reads it back. Returns its length and its SHA-256.
    pub(crate) async fn put_file(&self, name: &str, path: &Path) -> Result<(u64, String), Error> {
        let mut file = std::fs::File::open(path).map_err(Error::file("cannot open", path))?;
        let upload = self.store.put_multipart(&self.name(name)).await.map_err(self.failed("writing", name))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        let (mut hash, mut bytes) = (Sha256::new(), 0_u64);
        let sent: Result<(), Error> = async {
            loop {
                let mut part = Vec::new();
                let read = Read::by_ref(&mut file).take(PART_BYTES as u64).read_to_end(&mut part);
                if read.map_err(Error::file("cannot read", path))? == 0 {
                    return Ok(());
                }
                hash.update(&part);
                bytes = bytes.saturating_add(part.len() as u64);
                upload.wait_for_capacity(PARTS).await.map_err(self.failed("writing", name))?;
                upload.put(part.into());
            }
        }
        .await;
        if let Err(error) = sent {
            // What was sent is no object yet. If it cannot be removed, a rule of the bucket has to do it.
            let _ = upload.abort().await;
            return Err(error);
        }
        upload.finish().await.map_err(self.failed("writing", name))?;
        let sum = hex(&hash.finalize());
        match self.read(name, &mut |_| Ok(())).await? {
            Some(found) if found == (bytes, sum.clone()) => Ok((bytes, sum)),
            _ => Err(self.damaged(name, "it is not what was written a moment ago")),
        }
    }

    /// Copies an object into a new file. Returns its length and its SHA-256; `None` if there is none.
    pub(crate) async fn get_file(&self, name: &str, path: &Path) -> Result<Option<(u64, String)>, Error> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path);
        let mut file = file.map_err(Error::file("cannot make", path))?;
        self.read(name, &mut |piece| file.write_all(piece).map_err(Error::file("cannot write", path))).await
    }

    async fn read(
        &self,
        name: &str,
        take: &mut (dyn FnMut(&[u8]) -> Result<(), Error> + Send),
    ) -> Result<Option<(u64, String)>, Error> {
        let found = match self.store.get(&self.name(name)).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(self.failed("reading", name))?,
        };
        let (mut hash, mut bytes) = (Sha256::new(), 0_u64);
        let mut pieces = found.into_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(self.failed("reading", name))?;
            hash.update(&piece);
            bytes = bytes.saturating_add(piece.len() as u64);
            take(&piece)?;
        }
        Ok(Some((bytes, hex(&hash.finalize()))))
    }

    /// All objects whose names begin with `folder` and a slash, in the order of their names.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        let whole = self.name(folder);
        let found: Vec<_> =
            self.store.list(Some(&whole)).try_collect().await.map_err(self.failed("listing", folder))?;
        let listed = found.into_iter().filter_map(|meta| {
            let name = meta.location.prefix_match(&self.prefix)?.map(|part| part.as_ref().to_string());
            Some(Listed { name: name.collect::<Vec<_>>().join("/"), bytes: meta.size })
        });
        let mut listed: Vec<Listed> = listed.collect();
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }

    /// Removes an object, if there is one.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Error> {
        match self.store.delete(&self.name(name)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            deleted => deleted.map_err(self.failed("removing", name)),
        }
    }
}

/// The object store's client has no cryptography of its own.
fn provide_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Another part of the process may have done it.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = BytesMut::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        text.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    String::from_utf8_lossy(&text).into_owned()
}
