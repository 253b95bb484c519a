//! Names and passwords, as anybody may send them.

use crate::test_support::Rig;
use api::etcdserverpb::{AuthenticateRequest, AuthenticateResponse};
use api::limits::AUTH_NAME_BYTES_MAX;
use api::{Error, limits};
use budget::Pool;

const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

fn request(name_bytes: usize, password_bytes: usize) -> AuthenticateRequest {
    AuthenticateRequest { name: "n".repeat(name_bytes), password: "p".repeat(password_bytes) }
}

#[test]
fn no_more_of_a_password_counts_than_bcrypt_takes_in() {
    let rig = Rig::start(&[]);
    rig.enable_auth();
    let refused = |name: &str, password: &str| rig.log_in(name, password).expect_err("wrong").message;
    assert_eq!(refused("root", &"pw".repeat(500_000)), Error::AuthFailed.message());
    assert_eq!(refused(&"n".repeat(1 << 20), "pw"), Error::AuthFailed.message());
    assert_eq!(refused(&"n".repeat(AUTH_NAME_BYTES_MAX), "pw"), Error::AuthFailed.message());
    rig.log_in("root", "pw").expect("the right one");
}

#[test]
fn logins_that_wait_hold_little() {
    let rig = Rig::start(&[]);
    rig.cut_off(None);
    let waiting: Vec<_> = (0..8).map(|_| rig.begin(AUTHENTICATE, None, &request(4, 1 << 20))).collect();
    assert_eq!(rig.node().budget.held(Pool::Requests), 0, "of a long password a few bytes are kept");
    let name_bytes = AUTH_NAME_BYTES_MAX;
    let more: Vec<_> = (0..8).map(|_| rig.begin(AUTHENTICATE, None, &request(name_bytes, 1 << 20))).collect();
    assert_eq!(rig.node().budget.held(Pool::Requests), 8 * name_bytes as u64);
    assert!(name_bytes > limits::BUDGET_FREE_BYTES);
    for pending in waiting.into_iter().chain(more) {
        pending.take::<AuthenticateResponse>().expect_err("nobody leads");
    }
    assert_eq!(rig.node().budget.held(Pool::Requests), 0);
}
