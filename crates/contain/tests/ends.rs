//! What a panic ends, observed from outside: each case runs in a process of its own, which is this test's binary again.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, mpsc};

use contain::{Contained, Fate, Outside, Panicked, contain, contained_total, install, outside};

const CASE: &str = "CONTAIN_CASE";

/// Runs `case` in a process of its own and says how that ended and what it said.
fn run(case: &str) -> (Output, String) {
    let program = std::env::current_exe().expect("a program");
    let mut command = Command::new(program);
    let output = command.args(["--exact", "case", "--nocapture"]).env(CASE, case).output().expect("started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

/// Says so when it is dropped.
struct Said(&'static str);

impl Drop for Said {
    fn drop(&mut self) {
        eprintln!("dropped {}", self.0);
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("second slip");
    }
}

fn slip(text: &str) {
    panic!("{text}");
}

/// What the processes do; nothing when it runs as a test.
#[test]
fn case() {
    let Ok(case) = std::env::var(CASE) else { return };
    install(|panic, fate| {
        let fate = if fate == Fate::Scope { "contained" } else { "fatal" };
        eprintln!("{fate}: {panic}");
    });
    match case.as_str() {
        "inside" => {
            let outcome = contain(|| {
                let _said = Said("on the way");
                slip("first slip");
            });
            assert_eq!((outcome, contained_total()), (Err(Panicked), 1));
            assert_eq!(contain(|| 7), Ok(7), "the next one is not touched by it");
        }
        "outside" => {
            let _said = Said("too late");
            slip("first slip");
        }
        "between" => {
            let _ = contain(|| {
                let _said = Said("too late");
                outside(|| slip("first slip"));
            });
        }
        "after" => {
            let _ = contain(|| outside(|| ()));
            let _said = Said("too late");
            slip("first slip");
        }
        "nested" => {
            let outcome = contain(|| {
                let inner = contain(|| slip("first slip"));
                (inner, outside(|| contain(|| slip("second slip"))))
            });
            assert_eq!(outcome, Ok((Err(Panicked), Err(Panicked))));
            assert_eq!(contained_total(), 2);
        }
        "twice" => {
            let _ = contain(|| {
                let _bomb = Bomb;
                slip("first slip");
            });
        }
        "held" => {
            let _ = contain(|| {
                let _said = Said("too late");
                drop(Outside::new(Bomb));
            });
        }
        "locked" => {
            let state = Arc::new(Mutex::new(0));
            let (others, (tell, told)) = (state.clone(), mpsc::channel());
            std::thread::spawn(move || {
                told.recv().expect("told");
                let seen = others.lock().map_or_else(|poisoned| *poisoned.into_inner(), |seen| *seen);
                eprintln!("seen {seen}");
            });
            let mut half = state.lock().expect("not poisoned");
            *half = 1;
            tell.send(()).expect("waited for");
            slip("first slip");
        }
        "task" => {
            let mut task = std::pin::pin!(Contained::new(async {
                let _said = Said("the task");
                slip("first slip");
            }));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert_eq!(task.as_mut().poll(&mut cx), std::task::Poll::Ready(Err(Panicked)));
        }
        other => panic!("no case {other}"),
    }
    eprintln!("goes on");
}

#[test]
fn a_panic_in_a_scope_ends_the_scope() {
    for case in ["inside", "task"] {
        let (output, said) = run(case);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("contained: panicked at") && said.contains("first slip"), "{said}");
        assert!(said.contains("dropped ") && said.contains("goes on"), "{said}");
    }
    let (output, said) = run("nested");
    assert!(output.status.success() && said.matches("contained: ").count() == 2, "{said}");
}

/// Before anything is dropped: what is half changed is seen by nobody.
#[test]
fn a_panic_elsewhere_ends_the_process() {
    for case in ["outside", "between", "after", "locked", "held"] {
        let (output, said) = run(case);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{case}: {said}");
        assert!(said.contains("fatal: panicked at") && said.contains(" slip"), "{case}: {said}");
        assert!(!["goes on", "dropped", "seen"].iter().any(|word| said.contains(word)), "{case}: {said}");
    }
}

#[test]
fn a_second_panic_on_the_way_ends_the_process() {
    let (output, said) = run("twice");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("contained: ") && said.contains("first slip"), "{said}");
    assert!(said.contains("fatal: ") && said.contains("second slip") && !said.contains("goes on"), "{said}");
}

/// As in tests of everything that uses scopes: what panics outside of them is the test's.
#[test]
fn without_the_hook_scopes_let_through_what_is_not_theirs() {
    let theirs = std::panic::catch_unwind(|| contain(|| outside(|| contain(|| outside(|| slip("of a test"))))));
    assert!(theirs.is_err());
    assert_eq!(contain(|| slip("of the scope")), Err(Panicked));
    let cleaning = contain(|| {
        let _held = Outside::new(Said("while it unwinds"));
        slip("of the scope");
    });
    assert_eq!(cleaning, Err(Panicked));
}
