//! The Huffman code of strings (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: it follows from the lengths of its codes alone, and so do all tables here, at compile time.

use bytes::BufMut;

use super::Error;

/// Bits of the code of each byte, and of the end mark, which occurs in no string.
#[rustfmt::skip]
const LENGTHS_BITS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];
const SYMBOLS: usize = 257;
const END_MARK: u16 = 256;
const LENGTH_BITS_MIN: usize = 5;
const LENGTH_BITS_MAX: usize = 30;

/// Codes up to this length, which are those of nearly all header fields, are decoded in one step.
const SHORT_BITS: usize = 8;

static TABLES: Tables = Tables::new();

struct Tables {
    /// The code of each symbol, in the low bits.
    codes: [u32; SYMBOLS],
    /// What a string begins with when its next bits are the index: the symbol and the length of its code, 0 for a longer one.
    short: [(u8, u8); 1 << SHORT_BITS],
    /// Of each length: where its codes begin when they are written from the top bit of 32 on.
    first_codes: [u32; LENGTH_BITS_MAX + 1],
    /// Of each length: where its symbols begin in `symbols`.
    first_symbols: [u16; LENGTH_BITS_MAX + 1],
    /// All symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
}

impl Tables {
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "runs at compile time, where a slip is an error"
    )]
    const fn new() -> Tables {
        let mut tables = Tables {
            codes: [0; SYMBOLS],
            short: [(0, 0); 1 << SHORT_BITS],
            first_codes: [0; LENGTH_BITS_MAX + 1],
            first_symbols: [0; LENGTH_BITS_MAX + 1],
            symbols: [0; SYMBOLS],
        };
        // Written from the top bit of 32 on; wider, because after the last code it is 1 << 32.
        let mut code = 0u64;
        let mut count = 0;
        let mut length = LENGTH_BITS_MIN;
        while length <= LENGTH_BITS_MAX {
            tables.first_codes[length] = code as u32;
            tables.first_symbols[length] = count as u16;
            let mut symbol = 0;
            while symbol < SYMBOLS {
                if LENGTHS_BITS[symbol] as usize == length {
                    tables.codes[symbol] = (code >> (32 - length)) as u32;
                    tables.symbols[count] = symbol as u16;
                    let next_code = code + (1 << (32 - length));
                    let mut at = (code >> (32 - SHORT_BITS)) as usize;
                    while length <= SHORT_BITS && at < (next_code >> (32 - SHORT_BITS)) as usize {
                        tables.short[at] = (symbol as u8, length as u8);
                        at += 1;
                    }
                    code = next_code;
                    count += 1;
                }
                symbol += 1;
            }
            length += 1;
        }
        assert!(code == 1 << 32, "every string of bits begins with a code");
        tables
    }

    /// The symbol whose code of more than [`SHORT_BITS`] bits `window` begins with, and the length of its code.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the code is complete, which is asserted at compile time: every window begins with one of its symbols"
    )]
    fn long(&self, window: u32) -> (u16, u32) {
        let mut length = SHORT_BITS + 1;
        while length < LENGTH_BITS_MAX && window >= self.first_codes[length + 1] {
            length += 1;
        }
        let number = (window - self.first_codes[length]) >> (32 - length);
        (self.symbols[usize::from(self.first_symbols[length]) + number as usize], length as u32)
    }
}

/// Appends what `input` stands for to `out`: at most 8/5 of its length.
#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "`short` has an entry for every byte; at most 62 bits are in the window, of which none is taken that is not there"
)]
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    out.reserve(input.len() * 8 / LENGTH_BITS_MIN);
    let mut rest = input;
    // The next bits of the string from the top bit on, and how many of them there are.
    let mut window = 0u64;
    let mut bits = 0;
    loop {
        if bits < LENGTH_BITS_MAX as u32 {
            if let Some((bytes, tail)) = rest.split_first_chunk() {
                window |= u64::from(u32::from_be_bytes(*bytes)) << (32 - bits);
                bits += 32;
                rest = tail;
            } else {
                for &byte in rest {
                    window |= u64::from(byte) << (56 - bits);
                    bits += 8;
                }
                rest = &[];
                // As if the padding, which is ones, went on.
                window |= u64::MAX >> bits;
            }
        }
        let (symbol, length) = match TABLES.short[(window >> (64 - SHORT_BITS)) as usize] {
            (_, 0) => TABLES.long((window >> 32) as u32),
            (symbol, length) => (u16::from(symbol), u32::from(length)),
        };
        if length > bits {
            let is_padding = bits < 8 && window == u64::MAX;
            return if is_padding { Ok(()) } else { Err(Error::HuffmanPadding) };
        }
        if symbol == END_MARK {
            return Err(Error::HuffmanEndMark);
        }
        out.push(symbol as u8);
        window <<= length;
        bits -= length;
    }
}

/// How many bytes `text` takes when coded.
#[expect(clippy::indexing_slicing, reason = "there is a length for every byte")]
pub(super) fn encoded_bytes(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&byte| usize::from(LENGTHS_BITS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends `text`, coded.
#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "there is a code for every byte, of at most 30 bits, and at most 31 are pending before it"
)]
pub(super) fn encode(out: &mut impl BufMut, text: &[u8]) {
    // The low `bits` are still to be written; they are never more than 31 before a code is added.
    let mut pending = 0u64;
    let mut bits = 0;
    for &byte in text {
        let length = u32::from(LENGTHS_BITS[usize::from(byte)]);
        pending = pending << length | u64::from(TABLES.codes[usize::from(byte)]);
        bits += length;
        if bits >= 32 {
            bits -= 32;
            out.put_u32((pending >> bits) as u32);
        }
    }
    while bits >= 8 {
        bits -= 8;
        out.put_u8((pending >> bits) as u8);
    }
    if bits > 0 {
        out.put_u8((pending << (8 - bits)) as u8 | 0xff >> bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, text);
        assert_eq!(out.len(), encoded_bytes(text));
        out
    }

    fn plain(input: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        decode(input, &mut out).map(|()| out)
    }

    /// The bits of `parts` (value and length of each) one after the other, filled up with ones.
    fn bits(parts: &[(u32, usize)]) -> Vec<u8> {
        let mut text: String = parts.iter().map(|(value, length)| format!("{value:0length$b}")).collect();
        text.extend(std::iter::repeat_n('1', text.len().next_multiple_of(8) - text.len()));
        text.as_bytes().chunks(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | (bit - b'0'))).collect()
    }

    #[test]
    fn codes_are_those_of_appendix_b() {
        let some = [
            (0, 0x1ff8),
            (10, 0x3fff_fffc),
            (22, 0x3fff_fffe),
            (b' ', 0x14),
            (b'0', 0),
            (b'9', 0x1f),
            (b'Z', 0xfd),
            (b'\\', 0x7fff0),
            (b'a', 0x3),
            (b'~', 0x1ffd),
            (127, 0x0fff_fffc),
            (128, 0xfffe6),
            (220, 0x0fff_fffd),
            (255, 0x3ff_ffee),
        ];
        for (byte, code) in some {
            assert_eq!(TABLES.codes[usize::from(byte)], code, "byte {byte}");
        }
        assert_eq!(TABLES.codes[256], 0x3fff_ffff);
    }

    #[test]
    fn every_pair_of_bytes_there_and_back() {
        for first in 0..=255 {
            for second in 0..=255 {
                for text in [&[first, second][..], &[first, b'a', second, b'&', first]] {
                    assert_eq!(plain(&coded(text)).as_deref(), Ok(text));
                }
            }
        }
        assert_eq!(coded(b""), b"");
        assert_eq!(plain(b"").as_deref(), Ok(&b""[..]));
    }

    #[test]
    fn padding_is_up_to_seven_ones() {
        assert_eq!(plain(&bits(&[(0, 5), (0, 5)])), Ok(b"00".to_vec()));
        // A symbol that ends with its byte, then nothing or a whole byte of padding.
        assert_eq!(plain(&[0xf8]), Ok(b"&".to_vec()));
        assert_eq!(plain(&[0xf8, 0xff]), Err(Error::HuffmanPadding));
        assert_eq!(plain(&[0xff]), Err(Error::HuffmanPadding));
        assert_eq!(plain(&[0xff, 0xff, 0xff]), Err(Error::HuffmanPadding));
        // Zeros, or one zero among the ones.
        assert_eq!(plain(&[0b0000_0110]), Err(Error::HuffmanPadding));
        assert_eq!(plain(&[0b0000_0011]), Err(Error::HuffmanPadding));
        assert_eq!(plain(&[0b0000_0111]), Ok(b"0".to_vec()));
        // The last symbol is not whole: seven of the eight bits of `&`, 23 of 28 of another.
        assert_eq!(plain(&[0b0000_0111, 0b1100_0000]), Err(Error::HuffmanPadding));
        assert_eq!(plain(&[0xff, 0xff, 0xfe]), Err(Error::HuffmanPadding));
    }

    #[test]
    fn the_end_mark_is_in_no_string() {
        assert_eq!(plain(&[0xff; 4]), Err(Error::HuffmanEndMark));
        assert_eq!(plain(&bits(&[(0, 5), (0x3fff_ffff, 30), (0, 5)])), Err(Error::HuffmanEndMark));
    }
}
