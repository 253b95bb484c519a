//! Bytes that end with a number: the keys and values of a load.

/// Digits of a number: all keys are equally long.
pub(super) const DIGITS: usize = 9;

/// A fixed prefix, and a number behind it that is changed in place.
#[derive(Clone, Debug)]
pub(super) struct Numbered(Vec<u8>);

impl Numbered {
    pub(super) fn new(beginning: &[u8]) -> Numbered {
        Numbered([beginning, &[b'0'; DIGITS]].concat())
    }

    /// The bytes with `number`.
    pub(super) fn with(&mut self, number: u64) -> &[u8] {
        let mut rest = number;
        for digit in self.0.iter_mut().rev().take(DIGITS) {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_place_of_numbers() {
        let mut key = Numbered::new(b"key-");
        assert_eq!(key.with(123_456_789), b"key-123456789");
        assert_eq!(key.with(42), b"key-000000042");
    }
}
