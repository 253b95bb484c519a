//! Requests of the loads of single requests, and the keys and values that they are about.

use crate::plan::{Load, Order, Plan};
use api::varint::{put_nonempty, put_nonzero};

/// Makes one request after the other.
#[derive(Debug)]
pub(crate) struct Requests {
    load: Load,
    key: Vec<u8>,
    keys: u64,
    value_bytes: usize,
    order: Order,
    /// From one key of a scattered order to the next.
    stride: u64,
    serializable: bool,
    limit: u64,
    next: u64,
    random: u64,
    value: Vec<u8>,
    user: Vec<u8>,
    password: Vec<u8>,
}

impl Requests {
    /// The requests of thread `thread` of `plan.threads`, so that each key of a sequence is requested once.
    pub(crate) fn new(plan: &Plan, thread: usize) -> Requests {
        Requests {
            load: plan.load,
            key: plan.key.clone().into_bytes(),
            keys: plan.keys,
            value_bytes: plan.value_bytes,
            order: plan.order,
            stride: stride(plan.keys),
            serializable: plan.serializable,
            limit: plan.limit,
            next: plan.first + thread as u64,
            random: 0x9e37_79b9_7f4a_7c15 ^ (thread as u64 + 1) << 32,
            value: Vec::new(),
            user: plan.user.clone().into_bytes(),
            password: plan.password.clone().into_bytes(),
        }
    }

    /// Writes the next request into `out`, replacing its contents. Returns the number of its key. `step` is the step of
    /// a sequence of keys.
    pub(crate) fn make(&mut self, step: u64, out: &mut Vec<u8>) -> u64 {
        out.clear();
        let number = self.number(step);
        match self.load {
            Load::Put => {
                let name = key_name(&self.key, self.keys, number);
                value_of(number, self.value_bytes, &mut self.value);
                put_nonempty(out, 1, name.as_bytes());
                put_nonempty(out, 2, &self.value);
            }
            Load::Authenticate => {
                put_nonempty(out, 1, &self.user);
                put_nonempty(out, 2, &self.password);
            }
            Load::List => {
                let (from, until) = prefix_range(&self.key);
                put_nonempty(out, 1, &from);
                put_nonempty(out, 2, &until);
                put_nonzero(out, 3, self.limit);
                put_nonzero(out, 7, u64::from(self.serializable));
            }
            _ => {
                let name = key_name(&self.key, self.keys, number);
                put_nonempty(out, 1, name.as_bytes());
                put_nonzero(out, 7, u64::from(self.serializable));
            }
        }
        number
    }

    fn number(&mut self, step: u64) -> u64 {
        if self.keys == 1 {
            return 0;
        }
        if self.order == Order::Random {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            return self.random % self.keys;
        }
        let number = self.next % self.keys;
        self.next += step;
        match self.order {
            Order::Scattered => number * self.stride % self.keys,
            _ => number,
        }
    }
}

/// About 0.618 of so many keys, without a divisor in common with them: in steps of that every key has its turn, and keys that follow one
/// another are far apart.
fn stride(keys: u64) -> u64 {
    (keys * 618 / 1000..).find(|&stride| divisor(keys, stride) == 1).unwrap_or(1)
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// A key in place, without memory of its own.
pub(crate) struct KeyName {
    bytes: [u8; KEY_BYTES_MAX],
    len: usize,
}

/// Limit of the prefix before the number of a key.
pub(crate) const KEY_PREFIX_BYTES_MAX: usize = 256;
/// Digits of a key's number: all keys are equally long.
const DIGITS: usize = 9;
/// So many keys have different names.
pub(crate) const KEYS_MAX: u64 = 1_000_000_000;
const KEY_BYTES_MAX: usize = KEY_PREFIX_BYTES_MAX + DIGITS;

impl KeyName {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The name of key `number` of `keys`: only the prefix if there is a single key.
pub(crate) fn key_name(prefix: &[u8], keys: u64, number: u64) -> KeyName {
    let mut name = KeyName { bytes: [0; KEY_BYTES_MAX], len: prefix.len() };
    name.bytes[..prefix.len()].copy_from_slice(prefix);
    if keys > 1 {
        let mut rest = number;
        for at in (prefix.len()..prefix.len() + DIGITS).rev() {
            name.bytes[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        name.len += DIGITS;
    }
    name
}

/// The value of key `number`: `bytes` letters, whose beginning depends on the number.
pub(crate) fn value_of(number: u64, bytes: usize, out: &mut Vec<u8>) {
    out.clear();
    let start = (number % 26) as usize;
    out.extend((0..bytes).map(|at| b'a' + ((start + at) % 26) as u8));
}

/// Beginning and end of the range of all keys with `prefix`.
pub fn prefix_range(prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut until = prefix.to_vec();
    while let Some(last) = until.pop() {
        if last < u8::MAX {
            until.push(last + 1);
            return (prefix.to_vec(), until);
        }
    }
    // A single zero byte as the end means all keys from the beginning on.
    (if prefix.is_empty() { vec![0] } else { prefix.to_vec() }, vec![0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_follow_from_numbers() {
        assert_eq!(key_name(b"key-", 1, 0).as_bytes(), b"key-");
        assert_eq!(key_name(b"key-", 1000, 42).as_bytes(), b"key-000000042");
        let mut value = Vec::new();
        value_of(27, 4, &mut value);
        assert_eq!(value, b"bcde");
        assert_eq!(prefix_range(b"a\xff"), (b"a\xff".to_vec(), b"b".to_vec()));
        assert_eq!(prefix_range(b""), (b"\0".to_vec(), b"\0".to_vec()));
    }

    fn plan(line: &str) -> Plan {
        Plan::parse(line.split(' ').map(str::to_owned)).expect("a plan")
    }

    #[test]
    fn an_order_shared_by_threads_has_each_key_once() {
        for order in ["sequential", "scattered"] {
            let plan = plan(&format!("put --keys 100 --{order} true --first 7 --requests 100 --threads 4"));
            let mut numbers = Vec::new();
            for thread in 0..4 {
                let mut requests = Requests::new(&plan, thread);
                numbers.extend((0..25).map(|_| requests.make(4, &mut Vec::new())));
            }
            numbers.sort_unstable();
            assert_eq!(numbers, (0..100).collect::<Vec<_>>(), "{order}");
        }
    }

    #[test]
    fn a_scattered_order_goes_all_over_the_keys() {
        for keys in [2, 3, 10, 618, 1000, 4096, 100_000, KEYS_MAX] {
            let plan = plan(&format!("range --keys {keys} --scattered true --requests 1"));
            let mut requests = Requests::new(&plan, 0);
            let count = keys.min(1000);
            let mut numbers: Vec<u64> = (0..count).map(|_| requests.make(1, &mut Vec::new())).collect();
            let quarters =
                (0..4).filter(|part| numbers[..count.min(20) as usize].iter().any(|at| at * 4 / keys == *part));
            assert_eq!(quarters.count() as u64, keys.min(4), "{keys} keys: {numbers:?}");
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len() as u64, count, "{keys} keys");
            assert!(numbers.last() < Some(&keys));
        }
    }
}
