//! Log lines about changes that an operator should find again: of users, roles, permissions and alarms. Every member writes them when it
//! applies the entry.

use super::Node;
use api::authpb::permission::Type;
use api::etcdserverpb::alarm_request::AlarmAction;
use api::etcdserverpb::{AlarmType, InternalRaftRequest};
use api::{Message, RaftRequest};
use telemetry::logging::{self, Value};

/// Writes the line of an entry that was applied, if it has one.
pub(super) fn tell(node: &Node, index: u64, payload: &[u8]) {
    let kind = RaftRequest::of_entry(payload);
    let is_told = kind.is_some_and(|kind| kind.name().starts_with("Auth") || kind == RaftRequest::Alarm);
    // Each login that gets a new token is an entry, too.
    if !is_told || kind == Some(RaftRequest::Authenticate) {
        return;
    }
    // What could be applied can be decoded.
    let Ok(request) = InternalRaftRequest::decode(payload) else { return };
    let user = request.header.as_ref().map(|header| header.username.clone()).unwrap_or_default();
    let Some((text, fields)) = line(request) else { return };
    let mut values: Vec<(&str, Value<'_>)> = fields.iter().map(|(name, value)| (*name, Value::from(value))).collect();
    if !user.is_empty() {
        values.push(("requested-by", logging::shortened(&user).into()));
    }
    // The entry was committed before the start: the line may have been written before.
    if index <= node.opening.committed() {
        values.push(("replayed", true.into()));
    }
    match kind {
        Some(RaftRequest::Alarm) => logging::warn(text, &values),
        _ => logging::info(text, &values),
    }
}

type Fields = Vec<(&'static str, String)>;

/// The text and the fields, with etcd's names.
fn line(request: InternalRaftRequest) -> Option<(&'static str, Fields)> {
    let told = |text: &'static str, fields: &[(&'static str, &[u8])]| {
        Some((text, fields.iter().map(|(name, value)| (*name, shown(value))).collect()))
    };
    if request.auth_enable.is_some() {
        return told("enabled authentication", &[]);
    }
    if request.auth_disable.is_some() {
        return told("disabled authentication", &[]);
    }
    if let Some(add) = request.auth_user_add {
        return told("added a user", &[("user-name", add.name.as_bytes())]);
    }
    if let Some(delete) = request.auth_user_delete {
        return told("deleted a user", &[("user-name", delete.name.as_bytes())]);
    }
    if let Some(change) = request.auth_user_change_password {
        return told("changed a password of a user", &[("user-name", change.name.as_bytes())]);
    }
    if let Some(grant) = request.auth_user_grant_role {
        let fields = [("user-name", grant.user.as_bytes()), ("added-role-name", grant.role.as_bytes())];
        return told("granted a role to a user", &fields);
    }
    if let Some(revoke) = request.auth_user_revoke_role {
        let fields = [("user-name", revoke.name.as_bytes()), ("revoked-role-name", revoke.role.as_bytes())];
        return told("revoked a role from a user", &fields);
    }
    if let Some(add) = request.auth_role_add {
        return told("created a role", &[("role-name", add.name.as_bytes())]);
    }
    if let Some(delete) = request.auth_role_delete {
        return told("deleted a role", &[("role-name", delete.role.as_bytes())]);
    }
    if let Some(grant) = request.auth_role_grant_permission {
        let permission = grant.perm.unwrap_or_default();
        let kind = Type::try_from(permission.perm_type).map_or("", |kind| kind.as_str_name());
        let fields = [
            // etcd's line calls the role a user.
            ("user-name", grant.name.as_bytes()),
            ("role-name", grant.name.as_bytes()),
            ("permission-name", kind.as_bytes()),
            ("key", &permission.key),
            ("range-end", &permission.range_end),
        ];
        return told("granted/updated a permission to a user", &fields);
    }
    if let Some(revoke) = request.auth_role_revoke_permission {
        let fields = [("role-name", revoke.role.as_bytes()), ("key", &revoke.key), ("range-end", &revoke.range_end)];
        return told("revoked a permission on range", &fields);
    }
    let alarm = request.alarm?;
    let name = AlarmType::try_from(alarm.alarm).map_or("", |kind| kind.as_str_name());
    let member = format!("{:x}", alarm.member_id);
    let fields = [("alarm", name.as_bytes()), ("member-id", member.as_bytes())];
    match AlarmAction::try_from(alarm.action).ok()? {
        AlarmAction::Get => None,
        AlarmAction::Activate => told("raised an alarm", &fields),
        AlarmAction::Deactivate => told("disarmed an alarm", &fields),
    }
}

/// As much of it as a line may have.
fn shown(bytes: &[u8]) -> String {
    logging::shortened(&String::from_utf8_lossy(bytes)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::*;

    #[test]
    fn passwords_are_not_told() {
        let add = AuthUserAddRequest {
            name: "ann".into(),
            password: "secret".into(),
            hashed_password: "secret".into(),
            ..Default::default()
        };
        let request = InternalRaftRequest { auth_user_add: Some(add), ..Default::default() };
        assert_eq!(line(request), Some(("added a user", vec![("user-name", "ann".to_string())])));
    }

    #[test]
    fn alarms_name_their_member() {
        let alarm = |action: AlarmAction| {
            let alarm = AlarmRequest { action: action as i32, member_id: 0xab, alarm: AlarmType::Nospace as i32 };
            line(InternalRaftRequest { alarm: Some(alarm), ..Default::default() })
        };
        let fields = vec![("alarm", "NOSPACE".to_string()), ("member-id", "ab".to_string())];
        assert_eq!(alarm(AlarmAction::Deactivate), Some(("disarmed an alarm", fields.clone())));
        assert_eq!(alarm(AlarmAction::Activate), Some(("raised an alarm", fields)));
        assert_eq!(alarm(AlarmAction::Get), None);
    }
}
