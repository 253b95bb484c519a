//! Integers with a prefix of some bits (RFC 7541 section 5.1).

use bytes::BufMut;

use super::Error;

/// An integer may take four bytes after its prefix, which is far more than any index, length or table size needs.
const SHIFTS_AFTER_PREFIX: [u32; 4] = [0, 7, 14, 21];

/// Takes the integer off the front of `input`, whose first byte holds its prefix in the low `prefix_bits`.
#[inline]
pub(super) fn decode(input: &mut &[u8], prefix_bits: u32) -> Result<usize, Error> {
    let mask = prefix_max(prefix_bits);
    let (&first, rest) = input.split_first().ok_or(Error::Truncated)?;
    *input = rest;
    let prefix = first & mask;
    if prefix < mask { Ok(usize::from(prefix)) } else { decode_long(input, usize::from(mask)) }
}

fn decode_long(input: &mut &[u8], prefix: usize) -> Result<usize, Error> {
    let mut value = prefix;
    for shift in SHIFTS_AFTER_PREFIX {
        let (&byte, rest) = input.split_first().ok_or(Error::Truncated)?;
        *input = rest;
        value = usize::from(byte & 0x7f)
            .checked_shl(shift)
            .and_then(|bits| value.checked_add(bits))
            .ok_or(Error::IntegerTooLong)?;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Error::IntegerTooLong)
}

/// Appends `value` with a prefix of `prefix_bits`; `flags` are the bits above the prefix.
#[inline]
pub(super) fn encode(out: &mut impl BufMut, value: usize, prefix_bits: u32, flags: u8) {
    let mask = prefix_max(prefix_bits);
    debug_assert!(flags & mask == 0, "the flags stand above the prefix");
    let Some(mut rest) = value.checked_sub(usize::from(mask)) else {
        return out.put_u8(flags | value as u8);
    };
    out.put_u8(flags | mask);
    while rest >= 0x80 {
        out.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

#[expect(clippy::arithmetic_side_effects, reason = "prefixes have one to eight bits, and the callers name them")]
const fn prefix_max(prefix_bits: u32) -> u8 {
    0xff >> (8 - prefix_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: usize, prefix_bits: u32, flags: u8) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, value, prefix_bits, flags);
        out
    }

    #[test]
    fn the_examples_of_appendix_c_1() {
        assert_eq!(encoded(10, 5, 0b1010_0000), [0b1010_1010]);
        assert_eq!(encoded(1337, 5, 0), [0b0001_1111, 0b1001_1010, 0b0000_1010]);
        assert_eq!(encoded(42, 8, 0), [0b0010_1010]);
    }

    #[test]
    fn every_prefix_there_and_back() {
        for prefix_bits in 1..=8 {
            for value in (0..2000).chain([16_383, 16_384, 2_097_152, 200_000_000]) {
                let mut bytes = encoded(value, prefix_bits, 0);
                bytes.push(7);
                let mut input = &bytes[..];
                assert_eq!(decode(&mut input, prefix_bits), Ok(value));
                assert_eq!(input, [7]);
                for end in 0..bytes.len() - 1 {
                    assert_eq!(decode(&mut &bytes[..end], prefix_bits), Err(Error::Truncated));
                }
            }
        }
    }

    #[test]
    fn bits_above_the_prefix_do_not_count() {
        assert_eq!(decode(&mut &[0b1110_1010][..], 5), Ok(10));
    }

    #[test]
    fn the_largest_and_a_longer_one() {
        assert_eq!(decode(&mut &[0xff, 0xff, 0xff, 0xff, 0x7f][..], 8), Ok(255 + (1 << 28) - 1));
        assert_eq!(decode(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0x00][..], 8), Err(Error::IntegerTooLong));
        // Zeros that only make it longer.
        assert_eq!(decode(&mut &[0xff, 0x80, 0x80, 0x80, 0x00][..], 8), Ok(255));
        assert_eq!(decode(&mut &[0xff, 0x80, 0x80, 0x80, 0x80, 0x00][..], 8), Err(Error::IntegerTooLong));
    }
}
