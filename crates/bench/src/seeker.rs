//! Finds a member to talk to, as long as it takes.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rpc::client::Link;

use crate::link::{Place, SharedBuffer, connect};
use crate::pass::Pass;
use crate::socket::Socket;

/// The first pause after all members have been tried, and the longest.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time until the same error is printed again.
const TOLD: Duration = Duration::from_secs(5);

/// A connection that is being made, with the number of its place.
pub(crate) type Seeking = Pin<Box<dyn Future<Output = (Link<Socket>, usize)>>>;

/// Connects to one of several places.
pub(crate) struct Seeker {
    pub(crate) places: Vec<Place>,
    buffer: SharedBuffer,
    /// How long one attempt may take.
    patience: Duration,
    /// The errors printed recently, with their times.
    told: RefCell<Vec<(String, Instant)>>,
    pass: Rc<Pass>,
}

impl Seeker {
    pub(crate) fn new(places: &[Place], buffer: &SharedBuffer, patience: Duration, pass: &Rc<Pass>) -> Seeker {
        Seeker {
            places: places.to_vec(),
            buffer: buffer.clone(),
            patience,
            told: RefCell::default(),
            pass: pass.clone(),
        }
    }

    /// Replaces a pass that place `place` has refused.
    pub(crate) async fn renew(&self, number: u64, place: usize) {
        if let Err(status) = self.pass.renew(number, &self.places[place], self.patience).await {
            self.tell(&format!("cannot log in again: {}; trying on", status.message));
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Makes a connection, to place `first` if possible. Errors are printed on the standard error output.
    pub(crate) async fn seek(&self, first: usize) -> (Link<Socket>, usize) {
        let mut pause = PAUSE;
        loop {
            for step in 0..self.places.len() {
                let number = (first + step) % self.places.len();
                let place = &self.places[number];
                match tokio::time::timeout(self.patience, connect(place, &self.buffer)).await {
                    Ok(Ok(link)) => return (link, number),
                    Ok(Err(error)) => self.tell(&format!("{error}; trying on")),
                    Err(_) => {
                        self.tell(&format!(
                            "cannot connect to {}: nothing came within {:?}; trying on",
                            place.address, self.patience
                        ));
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Prints a warning, unless the same one was printed recently.
    pub(crate) fn tell(&self, text: &str) {
        let mut told = self.told.borrow_mut();
        told.retain(|(_, at)| at.elapsed() <= TOLD);
        if told.iter().all(|(last, _)| last != text) {
            flags::say!("warning: {text}");
            told.push((text.into(), Instant::now()));
        }
    }
}
