//! Tasks in a scope.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Panicked, contain};

/// A future each of whose turns is a scope of its own. It is over when one panics; what it holds is dropped with it, outside.
#[derive(Debug)]
pub struct Contained<F> {
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Contained<F> {
    /// Contains `future`.
    pub fn new(future: F) -> Contained<F> {
        Contained { future: Some(Box::pin(future)) }
    }
}

impl<F: Future> Future for Contained<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = self.future.as_mut() else { return Poll::Pending };
        let turn = contain(|| future.as_mut().poll(cx));
        match turn {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => {
                self.future = None;
                Poll::Ready(Ok(value))
            }
            Err(panicked) => {
                self.future = None;
                Poll::Ready(Err(panicked))
            }
        }
    }
}
