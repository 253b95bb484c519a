//! From the path of a request to the index of its method.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use api::Code;

use crate::{Kind, Method, Status};

/// The method table by path.
pub(crate) struct Routes {
    paths: HashMap<&'static str, (usize, Kind), BuildHasherDefault<PathHasher>>,
    services: HashSet<&'static str>,
}

impl Routes {
    pub(crate) fn new(methods: &'static [Method]) -> Routes {
        let mut routes = Routes { paths: HashMap::default(), services: HashSet::new() };
        for (index, method) in methods.iter().enumerate() {
            let twice = routes.paths.insert(method.path, (index, method.kind));
            assert!(twice.is_none(), "method `{}` is in the table twice", method.path);
            routes.services.extend(split(method.path).map(|(service, _)| service));
        }
        routes
    }

    /// The index and the kind of the method under `path`, or what a call of it is answered with.
    pub(crate) fn find(&self, path: &str) -> Result<(usize, Kind), Status> {
        if let Some(&method) = self.paths.get(path) {
            return Ok(method);
        }
        let text = match split(path) {
            None => format!("malformed method name: {path:?}"),
            Some((service, method)) if self.services.contains(service) => {
                format!("unknown method {method} for service {service}")
            }
            Some((service, _)) => format!("unknown service {service}"),
        };
        Err(Status::new(Code::Unimplemented, text))
    }
}

/// Service and method of a path.
fn split(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix('/')?.rsplit_once('/')
}

/// A cheap hash, eight bytes at a time. The keys are a fixed table, so clients cannot choose colliding ones.
#[derive(Default)]
pub(crate) struct PathHasher(u64);

impl PathHasher {
    fn word(&mut self, word: [u8; 8]) {
        self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Hasher for PathHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.word(*word);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            self.word(last);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_paths_say_what_is_unknown() {
        let routes = Routes::new(&[
            Method { path: "/a.B/One", kind: Kind::Unary },
            Method { path: "/a.B/Two", kind: Kind::Bidi },
        ]);
        assert_eq!(routes.find("/a.B/Two"), Ok((1, Kind::Bidi)));
        for (path, text) in [
            ("/a.B/Three", "unknown method Three for service a.B"),
            ("/a.C/One", "unknown service a.C"),
            ("/x/a.B/One", "unknown service x/a.B"),
            ("/nothing", "malformed method name: \"/nothing\""),
            ("*", "malformed method name: \"*\""),
        ] {
            assert_eq!(routes.find(path), Err(Status::new(Code::Unimplemented, text)), "{path}");
        }
    }
}
