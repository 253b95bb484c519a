//! A store in memory that can be made to fail, and to tear what it is given.

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Faulty {
    pub(crate) inner: InMemory,
    /// Changes that still go well; below 0 none does.
    pub(crate) left: AtomicI64,
    /// What was in it before, and how many reads still see that.
    pub(crate) before: Option<(InMemory, AtomicI64)>,
}

impl Faulty {
    pub(crate) fn new(left: i64) -> Arc<Faulty> {
        Arc::new(Faulty { inner: InMemory::new(), left: AtomicI64::new(left), before: None })
    }

    /// What a read sees.
    fn read(&self) -> &InMemory {
        match &self.before {
            Some((before, reads)) if reads.fetch_sub(1, Ordering::SeqCst) > 0 => before,
            _ => &self.inner,
        }
    }

    fn spend(&self) -> Result<()> {
        if self.left.fetch_sub(1, Ordering::SeqCst) > 0 { Ok(()) } else { Err(gone()) }
    }
}

fn gone() -> Error {
    Error::Generic { store: "Faulty", source: "no space left on device".into() }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if let Err(error) = self.spend() {
            // The worst that a store may do: a part of an object under its name. A replaced one stays as it was.
            let whole: bytes::Bytes = payload.into();
            let part = whole.slice(..whole.len() / 2);
            if self.inner.get_opts(location, GetOptions::default()).await.is_err() {
                self.inner.put_opts(location, part.into(), opts).await?;
            }
            return Err(error);
        }
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.spend()?;
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.read().get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.spend() {
            Ok(()) => self.inner.delete_stream(locations),
            Err(_) => locations.map(|_| Err(gone())).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.read().list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
