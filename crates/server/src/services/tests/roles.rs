//! How large a role may become, and all of them.

use crate::test_support::Rig;
use api::authpb::{Permission, permission::Type};
use api::etcdserverpb::{
    AuthRoleAddRequest, AuthRoleAddResponse, AuthRoleDeleteRequest, AuthRoleDeleteResponse,
    AuthRoleGrantPermissionRequest, AuthRoleGrantPermissionResponse, AuthUserAddRequest, AuthUserAddResponse,
    AuthUserGrantRoleRequest, AuthUserGrantRoleResponse,
};
use api::{Error, limits};
use rpc::Status;

const ADD: &str = "/etcdserverpb.Auth/RoleAdd";
const GRANT: &str = "/etcdserverpb.Auth/RoleGrantPermission";

fn add(rig: &Rig, name: &str) -> Result<AuthRoleAddResponse, Status> {
    rig.call(ADD, None, &AuthRoleAddRequest { name: name.into() })
}

fn grant(rig: &Rig, key: &str, bytes: usize, kind: Type) -> Result<AuthRoleGrantPermissionResponse, Status> {
    grant_to(rig, "r", key, bytes, kind)
}

fn grant_to(
    rig: &Rig,
    role: &str,
    key: &str,
    bytes: usize,
    kind: Type,
) -> Result<AuthRoleGrantPermissionResponse, Status> {
    let key = key.to_string() + &"k".repeat(bytes);
    let perm = Some(Permission { perm_type: kind as i32, key: key.into(), range_end: Default::default() });
    rig.call(GRANT, None, &AuthRoleGrantPermissionRequest { name: role.into(), perm })
}

#[test]
fn a_role_that_is_full_takes_no_more_permissions() {
    let rig = Rig::start(&[]);
    add(&rig, "r").expect("a new role");
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

#[test]
fn all_users_and_roles_fit_into_a_state_that_can_be_sent() {
    let rig = Rig::start(&[]);
    let bytes = 1 << 20;
    let fitting = usize::try_from(limits::USERS_BYTES_MAX).expect("small") / bytes - 1;
    let in_one = limits::ROLE_BYTES_MAX / bytes - 1;
    for at in 0..fitting {
        let role = format!("r{}", at / in_one);
        if at % in_one == 0 {
            add(&rig, &role).expect("a new role");
        }
        grant_to(&rig, &role, &format!("{at:02}"), bytes, Type::Read).expect("there is room");
    }
    // What is left is taken by names.
    let name = |at: usize| format!("{at:02}") + &"n".repeat(limits::AUTH_NAME_BYTES_MAX - 2);
    let taken = (0..).find(|at| add(&rig, &name(*at)).is_err()).expect("there is an end");
    assert!(taken < bytes / limits::AUTH_NAME_BYTES_MAX, "{taken} more");
    let user = AuthUserAddRequest { name: name(0), password: "p".into(), ..Default::default() };
    let member = AuthUserGrantRoleRequest { user: "u".into(), role: name(0) };
    let refused = [
        add(&rig, &name(taken)).map(drop),
        grant_to(&rig, "r4", "more", bytes, Type::Read).map(drop),
        rig.call::<AuthUserAddResponse>("/etcdserverpb.Auth/UserAdd", None, &user).map(drop),
        rig.call::<AuthUserGrantRoleResponse>("/etcdserverpb.Auth/UserGrantRole", None, &member).map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.expect_err("there is no room").message, Error::NoSpace.message());
    }
    let saved = rig.node().store.usage().live_bytes;
    assert!(saved <= limits::USERS_BYTES_MAX && saved > limits::USERS_BYTES_MAX - bytes as u64, "{saved}");
    // Keys are not refused, and what is removed leaves room.
    assert!(rig.node().store.claim_quota(1000).is_ok());
    let delete = AuthRoleDeleteRequest { role: "r0".into() };
    rig.call::<AuthRoleDeleteResponse>("/etcdserverpb.Auth/RoleDelete", None, &delete).expect("deleted");
    add(&rig, &name(taken)).expect("there is room again");
}
