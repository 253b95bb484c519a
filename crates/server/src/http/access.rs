//! Access checks: host names that requests without TLS may name, and origins from which browsers may send requests.

use crate::config;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use rpc::HttpResponder;
use telemetry::logging::{self, Pace};

/// Letters of a host's name in a line.
const HOST_CHARS_MAX: usize = 256;

/// The rules.
#[derive(Debug)]
pub(super) struct Access {
    /// None for all.
    origins: Option<Vec<String>>,
    /// None for all.
    hosts: Option<Vec<String>>,
}

impl Access {
    pub(super) fn new(config: &config::Http) -> Access {
        Access { origins: config.cors.clone(), hosts: config.host_whitelist.clone() }
    }

    /// Adds the headers for browsers to any response.
    pub(super) fn mark(&self, head: &Parts, responder: &mut HttpResponder) {
        let origin = match &self.origins {
            None => Some(HeaderValue::from_static("*")),
            Some(allowed) => head
                .headers
                .get(header::ORIGIN)
                .filter(|origin| allowed.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()))
                .cloned(),
        };
        let Some(origin) = origin else { return };
        let methods = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE");
        let headers = HeaderValue::from_static("accept, content-type, authorization");
        responder.add_header(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        responder.add_header(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        responder.add_header(header::ACCESS_CONTROL_ALLOW_HEADERS, headers);
    }

    /// The answer to a request that names a host which is not one of ours. It may come from a page that a browser was led to: its
    /// name may point to this machine by now. TLS tells browsers by itself whom they talk to.
    pub(super) fn refusal(&self, head: &Parts) -> Option<Response<Bytes>> {
        let allowed = self.hosts.as_ref()?;
        if head.extensions.get::<rpc::Peer>().is_some_and(|peer| peer.is_secure) {
            return None;
        }
        let named = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let named = named.or(head.uri.authority().map(|authority| authority.as_str())).unwrap_or_default();
        let host = host_of(named);
        if allowed.iter().any(|allowed| allowed == host) {
            return None;
        }
        static PACE: Pace = Pace::new();
        if let Some(left_out) = PACE.line() {
            let shown: String = host.chars().take(HOST_CHARS_MAX).collect();
            logging::warn(
                "rejecting HTTP request to prevent DNS rebinding attacks",
                &[("host", (&shown).into()), ("lines-left-out", left_out.into())],
            );
        }
        let text = format!(
            "The Host header of this request names {host:?}, which is none of the names that this server goes by.\n\n\
             Either\n- serve TLS, with which every name is taken, or\n- add the name: --host-whitelist {host:?}\n\n\
             Without this check web pages could reach the server through the browsers of those who visit them \
             (\"DNS rebinding\", CVE-2018-5702).\n"
        );
        Some(super::plain(StatusCode::MISDIRECTED_REQUEST, text))
    }
}

/// A host without its port.
fn host_of(named: &str) -> &str {
    let host = match named.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => named,
    };
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stand_without_their_ports() {
        for (named, host) in [
            ("a.example:2379", "a.example"),
            ("a.example", "a.example"),
            ("[::1]:2379", "::1"),
            ("[::1]", "::1"),
            ("", ""),
        ] {
            assert_eq!(host_of(named), host);
        }
    }

    #[test]
    fn only_hosts_of_the_list_are_answered() {
        let access = Access { origins: None, hosts: Some(vec!["localhost".into()]) };
        let head = |host: &'static str| {
            http::Request::builder().header("host", host).body(()).map(|request| request.into_parts().0)
        };
        assert!(access.refusal(&head("localhost:2379").expect("a request")).is_none());
        let refusal = access.refusal(&head("evil.example").expect("a request")).expect("a refusal");
        assert_eq!(refusal.status(), StatusCode::MISDIRECTED_REQUEST);
        assert!(String::from_utf8_lossy(refusal.body()).contains("--host-whitelist \"evil.example\""));
        assert!(Access { origins: None, hosts: None }.refusal(&head("evil.example").expect("a request")).is_none());
    }
}
