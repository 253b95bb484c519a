//! A look at the frames that come in, beside the HTTP/2 engine: it answers pings by itself and does not tell.

/// Type of frames, RFC 9113 section 6.
mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const PRIORITY: u8 = 2;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
}

/// The ACK flag of PING, and END_STREAM of DATA.
const FLAG_ACK_OR_END: u8 = 1;
const HEADER_BYTES: usize = 9;

/// Follows the frame boundaries of one connection's input, from behind the preface, and counts.
#[derive(Debug, Default)]
pub(crate) struct FrameScan {
    header: [u8; HEADER_BYTES],
    /// Bytes of `header` that are here.
    have: usize,
    /// Bytes of the current frame's payload still to come.
    skip: usize,
    /// Pings that are not answers.
    pub(crate) pings: u32,
    /// Streams that the client has given up.
    pub(crate) resets: u32,
    /// Frames that make work and carry nothing: pings, settings, priorities and empty DATA.
    pub(crate) idle_frames: u32,
}

impl FrameScan {
    pub(crate) fn look(&mut self, mut input: &[u8]) {
        while !input.is_empty() {
            if self.skip > 0 {
                let step = self.skip.min(input.len());
                self.skip -= step;
                input = &input[step..];
                continue;
            }
            let step = (HEADER_BYTES - self.have).min(input.len());
            self.header[self.have..self.have + step].copy_from_slice(&input[..step]);
            self.have += step;
            input = &input[step..];
            if self.have == HEADER_BYTES {
                self.have = 0;
                self.count();
            }
        }
    }

    fn count(&mut self) {
        let [a, b, c, frame_kind, flags, ..] = self.header;
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        let flagged = flags & FLAG_ACK_OR_END != 0;
        match frame_kind {
            kind::PING if !flagged => {
                self.pings = self.pings.saturating_add(1);
                self.idle_frames = self.idle_frames.saturating_add(1);
            }
            kind::RST_STREAM => self.resets = self.resets.saturating_add(1),
            kind::SETTINGS | kind::PRIORITY => self.idle_frames = self.idle_frames.saturating_add(1),
            kind::DATA if self.skip == 0 && !flagged => self.idle_frames = self.idle_frames.saturating_add(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_across_any_cut() {
        let mut input = Vec::new();
        for (kind, flags, len) in
            [(4, 0, 12), (6, 0, 8), (6, 1, 8), (1, 4, 40), (0, 0, 0), (0, 1, 0), (0, 0, 300), (3, 0, 4), (6, 0, 8)]
        {
            input.extend([0, (len >> 8) as u8, len as u8, kind, flags, 0, 0, 0, 1]);
            input.extend(vec![6_u8; len]);
        }
        for step in 1..input.len() {
            let mut scan = FrameScan::default();
            input.chunks(step).for_each(|piece| scan.look(piece));
            assert_eq!((scan.pings, scan.resets, scan.idle_frames), (2, 1, 4), "in pieces of {step}");
            assert_eq!((scan.have, scan.skip), (0, 0));
        }
    }
}
