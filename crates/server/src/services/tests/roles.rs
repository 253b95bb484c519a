//! How large a role may become.

use crate::test_support::Rig;
use api::authpb::{Permission, permission::Type};
use api::etcdserverpb::{
    AuthRoleAddRequest, AuthRoleAddResponse, AuthRoleGrantPermissionRequest, AuthRoleGrantPermissionResponse,
};
use api::{Error, limits};
use rpc::Status;

const ADD: &str = "/etcdserverpb.Auth/RoleAdd";
const GRANT: &str = "/etcdserverpb.Auth/RoleGrantPermission";

fn grant(rig: &Rig, key: &str, bytes: usize, kind: Type) -> Result<AuthRoleGrantPermissionResponse, Status> {
    let key = key.to_string() + &"k".repeat(bytes);
    let perm = Some(Permission { perm_type: kind as i32, key: key.into(), range_end: Default::default() });
    rig.call(GRANT, None, &AuthRoleGrantPermissionRequest { name: "r".into(), perm })
}

#[test]
fn a_role_that_is_full_takes_no_more_permissions() {
    let rig = Rig::start(&[]);
    rig.call::<AuthRoleAddResponse>(ADD, None, &AuthRoleAddRequest { name: "r".into() }).expect("a new role");
    let bytes = 1 << 20;
    let fitting = limits::ROLE_BYTES_MAX / bytes - 1;
    for at in 0..fitting {
        grant(&rig, &format!("{at:02}"), bytes, Type::Read).expect("there is room");
    }
    let refused = grant(&rig, "last", bytes, Type::Read).expect_err("there is no room");
    assert_eq!(refused.message, Error::RequestTooLarge.message());
    grant(&rig, "short", 0, Type::Read).expect("there is room for a short one");
    grant(&rig, "00", bytes, Type::Readwrite).expect("it is there already");
    assert_eq!(rig.node().store.auth().role("r").map(|all| all.len()), Ok(fitting + 1));
}
