//! bcrypt, which is slow on purpose: on threads of its own that take what the others leave of the processors, and a little more where
//! these leave nothing (`late.rs`).

use super::late::{Job, Late};
use crate::node::SlowPool;
use crate::yield_cpu;
use ring::rand::{SecureRandom, SystemRandom};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use store::Password;

/// Entries of the queue to the threads. Those of jobs that `bcrypt-late` has finished stay until a thread gets a
/// processor, so there is room for more of them than jobs may wait.
const QUEUE_MAX: usize = 1_024;
/// bcrypt uses only this many bytes of a password.
pub(super) const PASSWORD_BYTES_MAX: usize = 72;

/// The threads, and the parameters of hashing.
pub(super) struct Hashing {
    pool: SlowPool,
    late: Late,
    cost: u32,
    /// A hash that no password matches: verifying it makes failures take as long for users that do not exist.
    nobodys: Arc<str>,
}

/// Why a password is not hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HashError {
    #[error("bcrypt: password length exceeds 72 bytes")]
    TooLong,
    #[error("etcdserver: too many requests")]
    Busy,
    #[error("no random numbers for a salt")]
    Random,
}

impl Hashing {
    pub(super) fn start(cost: u32) -> io::Result<Hashing> {
        let nobodys = nobodys(cost).into();
        Ok(Hashing { pool: SlowPool::start("bcrypt", threads(), QUEUE_MAX)?, late: Late::start()?, cost, nobodys })
    }

    /// Runs `job` on one of the threads; false if too many wait. It may run on two of them at the same time.
    pub(super) fn run(&self, job: impl Fn() + Send + Sync + 'static) -> bool {
        let Some(job) = self.late.watch(Job::new(job)) else { return false };
        // If the queue is full, these threads have had no processor for long, and `bcrypt-late` runs the job.
        self.pool.try_run(None, move || {
            thread_local!(static LOWERED: Cell<bool> = const { Cell::new(false) });
            if !LOWERED.replace(true) {
                yield_cpu::yield_to_all();
            }
            // A job that is finished is gone.
            if let Some(job) = job.upgrade() {
                job.run();
            }
        });
        true
    }

    /// Hashes a password into its stored form. `then` is called once; if the password cannot be hashed, it is called at
    /// once.
    pub(super) fn hash(&self, password: String, then: impl FnOnce(Result<String, HashError>) + Send + 'static) {
        if password.len() > PASSWORD_BYTES_MAX {
            return then(Err(HashError::TooLong));
        }
        let cost = self.cost;
        let then = Once::new(then);
        let job = then.clone();
        if !self.run(move || job.call(hash(password.as_bytes(), cost))) {
            then.call(Err(HashError::Busy));
        }
    }

    /// Checks a password against the stored hash. Takes as long if there is no hash.
    pub(super) fn verify(
        &self,
        password: Vec<u8>,
        stored: Password,
        then: impl FnOnce(Result<bool, HashError>) + Send + 'static,
    ) {
        let nobodys = self.nobodys.clone();
        let then = Once::new(then);
        let job = then.clone();
        let verify = move || {
            let known = if let Password::Hash(hash) = &stored { std::str::from_utf8(hash).ok() } else { None };
            // An invalid hash never matches, but takes as long.
            let found = match known.map(|hash| bcrypt::verify(&password, hash)) {
                Some(Ok(is_right)) => is_right,
                _ => bcrypt::verify(&password, &nobodys).is_ok_and(|_| false),
            };
            job.call(Ok(found));
        };
        if !self.run(verify) {
            then.call(Err(HashError::Busy));
        }
    }
}

/// One thread for two processors.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get()).div_ceil(2)
}

/// A hash that takes as long as any other to verify, and that no password matches. It is not computed from a password:
/// with the highest cost that takes hours.
fn nobodys(cost: u32) -> String {
    format!("$2a${cost:02}${}", ".".repeat(53))
}

/// Hashes a password in the format of Go's library.
fn hash(password: &[u8], cost: u32) -> Result<String, HashError> {
    let mut salt = [0; 16];
    SystemRandom::new().fill(&mut salt).map_err(|_| HashError::Random)?;
    let parts = bcrypt::hash_with_salt(password, cost, salt).map_err(|_| HashError::TooLong)?;
    Ok(parts.format_for_version(bcrypt::Version::TwoA))
}

/// A callback for a result.
type Then<T> = Box<dyn FnOnce(T) + Send>;

/// A callback that is called once: by the thread that finishes the job first, or at once if there is no room for the job.
struct Once<T>(Arc<std::sync::Mutex<Option<Then<T>>>>);

impl<T> Clone for Once<T> {
    fn clone(&self) -> Self {
        Once(self.0.clone())
    }
}

impl<T> Once<T> {
    fn new(then: impl FnOnce(T) + Send + 'static) -> Once<T> {
        Once(Arc::new(std::sync::Mutex::new(Some(Box::new(then)))))
    }

    fn call(&self, value: T) {
        let then = contain::lock(&self.0).take();
        if let Some(then) = then {
            then(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::late::WAITING_MAX;
    use super::*;
    use contain::lock;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_that_the_late_thread_has_finished_take_no_place() {
        let hashing = Hashing::start(4).expect("threads");
        let (gate, password) = (Arc::new(Mutex::new(())), Arc::new(()));
        let closed = lock(&gate);
        // The threads that take only idle time get stuck in the first job that they come to.
        let (done, finished) = channel();
        let run = || {
            let (gate, password, done) = (gate.clone(), password.clone(), Mutex::new(done.clone()));
            hashing.run(move || {
                let _password = &password;
                if std::thread::current().name() == Some("bcrypt-late") {
                    lock(&done).send(()).expect("somebody listens");
                } else {
                    drop(lock(&gate));
                }
            })
        };
        for _ in 0..3 {
            assert!((0..WAITING_MAX).all(|_| run()), "there is a place for each");
            assert_eq!(finished.iter().take(WAITING_MAX).count(), WAITING_MAX);
        }
        // The thread lets go of the last job after it has said so; those that are stuck hold one each.
        while Arc::strong_count(&password) > 1 + threads() {
            std::thread::yield_now();
        }
        drop(closed);
    }

    #[test]
    fn so_many_may_wait() {
        let hashing = Hashing::start(4).expect("threads");
        let gate = Arc::new(Mutex::new(()));
        let closed = lock(&gate);
        let (done, finished) = channel();
        let run = || {
            let (gate, done) = (gate.clone(), Mutex::new(done.clone()));
            hashing.run(move || {
                drop(lock(&gate));
                // The last ones may end after the test.
                lock(&done).send(()).ok();
            })
        };
        let taken = (0..).take_while(|_| run()).count();
        assert!((WAITING_MAX..=WAITING_MAX + threads() + 1).contains(&taken), "{taken}");
        drop(closed);
        // Some may be run twice.
        assert_eq!(finished.iter().take(taken).count(), taken);
        while !run() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn nobody_s_hash_is_looked_at() {
        assert!(matches!(bcrypt::verify(b"", &nobodys(4)), Ok(false)));
    }

    #[test]
    fn hashes_are_go_s() {
        for password in [&b"pw"[..], b"", b"with\0nul", &[b'p'; 72]] {
            let hash = hash(password, 4).expect("hashed");
            assert!(hash.starts_with("$2a$04$") && hash.len() == 60, "{hash}");
            assert!(bcrypt::verify(password, &hash).expect("verified"));
            assert!(!bcrypt::verify(b"another", &hash).expect("verified"));
        }
    }
}
