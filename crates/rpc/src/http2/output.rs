//! The output of a connection: gathered, and written in as few system calls as possible.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

/// Bytes from here on are written from where they lie instead of being copied.
const DIRECT_BYTES_MIN: usize = 4 * 1024;
/// Memory kept for output between turns.
const IDLE_BYTES_MAX: usize = 16 * 1024;
/// Slices of one write.
const SLICES_MAX: usize = 64;

/// Bytes on their way to a peer.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// What comes before `tail`.
    sealed: VecDeque<Bytes>,
    sealed_bytes: usize,
    tail: BytesMut,
    /// What waited at most since the memory for it was given back.
    most_bytes: usize,
}

impl Output {
    /// Where to append small things.
    pub(crate) fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    /// Appends `bytes`, by reference if they are many.
    pub(crate) fn append(&mut self, bytes: Bytes) {
        if bytes.len() < DIRECT_BYTES_MIN {
            return self.tail.extend_from_slice(&bytes);
        }
        if !self.tail.is_empty() {
            let tail = self.tail.split().freeze();
            self.sealed_bytes = self.sealed_bytes.saturating_add(tail.len());
            self.sealed.push_back(tail);
        }
        self.sealed_bytes = self.sealed_bytes.saturating_add(bytes.len());
        self.sealed.push_back(bytes);
    }

    /// Bytes that are not written yet.
    pub(crate) fn len(&self) -> usize {
        self.sealed_bytes.saturating_add(self.tail.len())
    }

    /// Writes as much as `to` takes. Pending if it did not take everything.
    pub(crate) fn flush(
        &mut self,
        to: &mut (impl AsyncWrite + Unpin + ?Sized),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.most_bytes = self.most_bytes.max(self.len());
        while self.len() > 0 {
            let written = if self.sealed.is_empty() {
                ready!(Pin::new(&mut *to).poll_write(cx, &self.tail))
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let pieces = self.sealed.iter().map(|bytes| &bytes[..]).chain([&self.tail[..]]);
                let filled = slices.iter_mut().zip(pieces).map(|(slice, bytes)| *slice = IoSlice::new(bytes)).count();
                ready!(Pin::new(&mut *to).poll_write_vectored(cx, slices.get(..filled).unwrap_or(&slices)))
            };
            let count = written.inspect_err(end_if_unreadable)?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(count);
        }
        if std::mem::take(&mut self.most_bytes) > IDLE_BYTES_MAX {
            self.tail = BytesMut::new();
        }
        // A TLS stream may still hold some of it.
        Pin::new(to).poll_flush(cx)
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "`sealed_bytes` is the length of all that is in `sealed`, and no step is longer than what is left of `count`"
    )]
    fn advance(&mut self, mut count: usize) {
        while let Some(first) = self.sealed.front_mut() {
            let step = first.len().min(count);
            self.sealed_bytes -= step;
            count -= step;
            if step < first.len() {
                return first.advance(step);
            }
            self.sealed.pop_front();
        }
        self.tail.advance(count);
    }
}

/// Ends the process if the system could not read what was to be written: mapped bytes of a file that the disk does not give. Reading
/// them here would have ended it, too.
fn end_if_unreadable(error: &io::Error) {
    if error.raw_os_error() == Some(libc::EFAULT) {
        contain::outside(|| panic!("stored bytes cannot be read: the disk has failed, or a file was cut off"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// Takes this many bytes at a time.
    struct Narrow(Vec<u8>, usize);

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn memory_is_given_back_however_little_is_left_at_last() {
        let mut output = Output::default();
        output.tail().extend_from_slice(&[7; 1 << 20]);
        let mut cx = Context::from_waker(Waker::noop());
        // It takes all but ten bytes, and those later.
        struct Takes(usize);
        impl AsyncWrite for Takes {
            fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                let count = bytes.len().min(self.0);
                self.0 -= count;
                if count == 0 { Poll::Pending } else { Poll::Ready(Ok(count)) }
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
        }
        assert!(output.flush(&mut Takes((1 << 20) - 10), &mut cx).is_pending());
        assert_eq!(output.len(), 10);
        assert!(output.flush(&mut Takes(10), &mut cx).is_ready());
        output.tail().reserve(1);
        assert!(output.tail().capacity() < 1 << 10, "{}", output.tail().capacity());
    }

    #[test]
    fn bytes_leave_in_order_however_little_is_taken() {
        for step in [1, 7, 4096, 1 << 20] {
            let mut output = Output::default();
            let mut wanted = Vec::new();
            for (index, len) in [3, 5000, 1, 0, 9000, 4096, 17].into_iter().enumerate() {
                let bytes = vec![index as u8; len];
                output.tail().extend_from_slice(b"-");
                wanted.push(b'-');
                wanted.extend_from_slice(&bytes);
                output.append(Bytes::from(bytes));
            }
            assert_eq!(output.len(), wanted.len());
            let mut narrow = Narrow(Vec::new(), step);
            let mut cx = Context::from_waker(Waker::noop());
            assert!(matches!(output.flush(&mut narrow, &mut cx), Poll::Ready(Ok(()))));
            assert!(narrow.0 == wanted, "by {step}");
            assert_eq!(output.len(), 0);
        }
    }
}
