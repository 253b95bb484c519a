//! Debug output of messages that carry passwords, their hashes or tokens: none of these is ever shown.

use crate::authpb::User;
use crate::etcdserverpb::{
    AuthUserAddRequest, AuthUserChangePasswordRequest, AuthenticateRequest, AuthenticateResponse,
    InternalAuthenticateRequest,
};
use std::fmt::{Debug, Formatter, Result};

macro_rules! shown {
    ($($message:ident: $($field:ident)*;)*) => {$(
        impl Debug for $message {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                f.debug_struct(stringify!($message))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    )*};
}

shown! {
    User: name roles options;
    AuthenticateRequest: name;
    AuthenticateResponse: header;
    AuthUserAddRequest: name options;
    AuthUserChangePasswordRequest: name;
    InternalAuthenticateRequest: name;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcdserverpb::InternalRaftRequest;

    #[test]
    fn secrets_are_not_shown() {
        let secret = || String::from("sesame");
        let text = format!(
            "{:?}",
            InternalRaftRequest {
                authenticate: Some(InternalAuthenticateRequest {
                    name: "ann".into(),
                    password: secret(),
                    simple_token: secret()
                }),
                auth_user_add: Some(AuthUserAddRequest {
                    password: secret(),
                    hashed_password: secret(),
                    ..Default::default()
                }),
                auth_user_change_password: Some(AuthUserChangePasswordRequest {
                    name: "bob".into(),
                    password: secret(),
                    hashed_password: secret()
                }),
                ..Default::default()
            }
        );
        assert!(text.contains("ann") && text.contains("bob") && !text.contains("sesame"), "{text}");
        let answer = AuthenticateResponse { token: secret(), ..Default::default() };
        let request = AuthenticateRequest { password: secret(), ..Default::default() };
        let user = User { password: "sesame".into(), ..Default::default() };
        assert!(!format!("{answer:?}{request:?}{user:?}").contains("sesame"));
    }
}
