//! As much of DER as finding a key takes.

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;

/// A value: its tag, its content, and what follows it.
fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

fn expect(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = value(bytes)?;
    (found == tag).then_some((content, rest))
}

/// The bits of a bit string that has no unused bits.
fn bits(content: &[u8]) -> Option<&[u8]> {
    content.strip_prefix(&[0])
}

/// The key in a `SubjectPublicKeyInfo`, in its algorithm's own form.
pub(super) fn public_key(info: &[u8]) -> Option<&[u8]> {
    let (info, _) = expect(SEQUENCE, info)?;
    let (_algorithm, rest) = expect(SEQUENCE, info)?;
    bits(expect(BIT_STRING, rest)?.0)
}

/// The key in a certificate, in its algorithm's own form.
pub(super) fn certified_key(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = expect(SEQUENCE, certificate)?;
    let (mut rest, _) = expect(SEQUENCE, certificate)?;
    // The version has a tag of its own and is optional. Serial number, algorithm, issuer, validity and subject follow.
    if let Some((0xa0, _, behind)) = value(rest) {
        rest = behind;
    }
    for _ in 0..5 {
        rest = value(rest)?.2;
    }
    public_key(rest)
}

/// A private key of an elliptic curve, as its number and its point.
pub(super) fn curve_key(key: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (key, _) = expect(SEQUENCE, key)?;
    let (_version, rest) = expect(INTEGER, key)?;
    let (number, mut rest) = expect(OCTET_STRING, rest)?;
    let mut point = None;
    while let Some((tag, content, behind)) = value(rest) {
        if tag == 0xa1 {
            point = Some(bits(expect(BIT_STRING, content)?.0)?);
        }
        rest = behind;
    }
    Some((number, point))
}

/// The private key in a PKCS #8 envelope.
pub(super) fn enclosed_key(envelope: &[u8]) -> Option<&[u8]> {
    let (envelope, _) = expect(SEQUENCE, envelope)?;
    let (_version, rest) = expect(INTEGER, envelope)?;
    let (_algorithm, rest) = expect(SEQUENCE, rest)?;
    Some(expect(OCTET_STRING, rest)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_no_key() {
        for len in 0..6 {
            for byte in [0u8, 0x30, 0x80, 0x82, 0x84, 0xff] {
                let bytes = vec![byte; len];
                assert_eq!(public_key(&bytes), None);
                assert_eq!(certified_key(&bytes), None);
                assert_eq!(curve_key(&bytes), None);
                assert_eq!(enclosed_key(&bytes), None);
            }
        }
        assert_eq!(value(&[4, 0x84, 0xff, 0xff, 0xff, 0xff, 1]), None);
        assert_eq!(value(&[4, 0x81, 1, 9, 7]), Some((4, &[9][..], &[7][..])));
    }
}
