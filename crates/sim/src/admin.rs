//! An administrator: sets up users and roles, and changes them while clients write.

use crate::extras::Extras;
use crate::operation::{Request, State};
use crate::schedule::Event;
use crate::world::World;
use api::Message;
use api::authpb::{Permission, UserAddOptions, permission::Type};
use api::etcdserverpb::*;
use bytes::Bytes;
use disk::sim::Random;

/// Separates the administrator's random choices from all others.
const STREAM: u64 = 0x0ad3_11f1_57ea_7002;
/// Users and roles beside root.
const NAMES: u64 = 3;

/// The administrator of a run with users.
pub(crate) struct Admin {
    random: Random,
    /// Steps of the set-up that are done.
    step: u64,
    /// The request under way.
    waits_for: Option<usize>,
}

impl Admin {
    pub(crate) fn new(seed: u64) -> Admin {
        Admin { random: Random::new(seed ^ STREAM), step: 0, waits_for: None }
    }
}

/// The user of a client.
pub(crate) fn user_of(client: Option<usize>) -> String {
    client.map_or("root".into(), |client| format!("u{}", client as u64 % NAMES))
}

fn add_user(name: &str) -> InternalRaftRequest {
    let options = Some(UserAddOptions { no_password: true });
    let add = AuthUserAddRequest { name: name.into(), options, ..Default::default() };
    InternalRaftRequest { auth_user_add: Some(add), ..Default::default() }
}

fn add_role(name: &str) -> InternalRaftRequest {
    InternalRaftRequest { auth_role_add: Some(AuthRoleAddRequest { name: name.into() }), ..Default::default() }
}

fn grant_role(user: &str, role: &str) -> InternalRaftRequest {
    let grant = AuthUserGrantRoleRequest { user: user.into(), role: role.into() };
    InternalRaftRequest { auth_user_grant_role: Some(grant), ..Default::default() }
}

fn grant(role: &str, kind: Type, key: Bytes, range_end: Bytes) -> InternalRaftRequest {
    let perm = Some(Permission { perm_type: kind as i32, key, range_end });
    let grant = AuthRoleGrantPermissionRequest { name: role.into(), perm };
    InternalRaftRequest { auth_role_grant_permission: Some(grant), ..Default::default() }
}

impl Admin {
    /// The next step of the set-up, or a change at random.
    fn next(&mut self, extras: &Extras) -> InternalRaftRequest {
        let random = &mut self.random;
        match self.step {
            0 => add_user("root"),
            1 => grant_role("root", "root"),
            step @ 2..5 => add_user(&format!("u{}", step - 2)),
            step @ 5..8 => add_role(&format!("r{}", step - 5)),
            step @ 8..11 => {
                let (key, end) = if step == 8 { ("k", "l") } else { ("k0", "k3") };
                grant(&format!("r{}", step - 8), Type::Readwrite, key.into(), end.into())
            }
            step @ 11..14 => grant_role(&format!("u{}", step - 11), &format!("r{}", step - 11)),
            14 => InternalRaftRequest { auth_enable: Some(AuthEnableRequest {}), ..Default::default() },
            _ => {
                if extras.is_varied && random.chance(12) {
                    let role = format!("r{}", random.below(NAMES));
                    if random.chance(50) {
                        return add_role(&role);
                    }
                    let delete = Some(AuthRoleDeleteRequest { role });
                    return InternalRaftRequest { auth_role_delete: delete, ..Default::default() };
                }
                let (user, role) = (format!("u{}", random.below(NAMES)), format!("r{}", random.below(NAMES)));
                let kind = [Type::Read, Type::Write, Type::Readwrite, Type::Readwrite][random.below(4) as usize];
                let (key, range_end): (Bytes, Bytes) = match random.below(3) {
                    0 => ("k".into(), "l".into()),
                    1 => ("k0".into(), format!("k{}", 1 + random.below(7)).into()),
                    _ => (format!("k{}", random.below(8)).into(), Bytes::new()),
                };
                match random.below(if extras.has_tokens { 23 } else { 20 }) {
                    0..7 => grant(&role, kind, key, range_end),
                    7..12 => {
                        let revoke = AuthRoleRevokePermissionRequest { role, key, range_end };
                        InternalRaftRequest { auth_role_revoke_permission: Some(revoke), ..Default::default() }
                    }
                    12..15 => grant_role(&user, &role),
                    15..17 => {
                        let revoke = AuthUserRevokeRoleRequest { name: user, role };
                        InternalRaftRequest { auth_user_revoke_role: Some(revoke), ..Default::default() }
                    }
                    17 => {
                        let delete = AuthUserDeleteRequest { name: user };
                        InternalRaftRequest { auth_user_delete: Some(delete), ..Default::default() }
                    }
                    18 => add_user(&user),
                    20..22 => {
                        let change = AuthUserChangePasswordRequest { name: user, ..Default::default() };
                        InternalRaftRequest { auth_user_change_password: Some(change), ..Default::default() }
                    }
                    22 => InternalRaftRequest { auth_disable: Some(AuthDisableRequest {}), ..Default::default() },
                    _ => InternalRaftRequest { auth_enable: Some(AuthEnableRequest {}), ..Default::default() },
                }
            }
        }
    }
}

impl World {
    /// The administrator waits for an answer, or sends the next request.
    pub(crate) fn administer(&mut self) {
        if self.finale.has_begun() {
            return;
        }
        let delay_us = 5_000 + self.admin.random.below(if self.admin.step > 14 { 250_000 } else { 20_000 });
        self.env.after(delay_us, Event::Administer);
        if let Some(operation) = self.admin.waits_for {
            match self.env.history.operations[operation].state {
                State::Pending => return,
                // Also one that has failed because it was done before.
                State::Done => self.admin.step += 1,
                State::Refused | State::Unknown => {}
            }
        }
        let mut request = self.admin.next(&self.env.plan.extras);
        let id = self.env.request_id();
        request.header = Some(RequestHeader { id, ..Default::default() });
        let hosts: Vec<usize> = self.living().collect();
        let host = hosts[self.admin.random.below(hosts.len().max(1) as u64) as usize];
        let request = Request::Write(request.encode_to_vec().into());
        let operation = self.env.history.begin(self.env.now_us, None, id, request);
        self.admin.waits_for = Some(operation);
        self.request(host, operation);
    }
}
