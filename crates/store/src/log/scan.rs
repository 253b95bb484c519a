//! Reading the log in revision order.

use super::layout::{Kind, RECORD_HEADER_BYTES};
use super::{Segment, Segments, Value};
use crate::types::{Loc, Revision};
use std::sync::Arc;

/// A record that a scan found.
#[derive(Clone, Debug)]
pub struct Record {
    /// When the change was made.
    pub rev: Revision,
    /// True when the key was deleted.
    pub tombstone: bool,
    /// Where the record is at the moment.
    pub loc: Loc,
    /// Its stored bytes.
    pub value: Value,
}

/// A record that a scan found, borrowed: for callers that look at many and keep few.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    /// When the change was made.
    pub rev: Revision,
    /// True when the key was deleted.
    pub tombstone: bool,
    /// Where the record is at the moment.
    pub loc: Loc,
    segment: &'a Arc<Segment>,
}

impl<'a> RecordRef<'a> {
    /// The stored bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.segment.stored(self.loc.offset as usize, self.loc.len as usize)
    }

    /// The stored bytes, kept alive.
    pub fn value(&self) -> Value {
        Value::new(Arc::clone(self.segment), self.loc.offset, self.loc.len)
    }
}

/// A cursor over the log in revision order.
///
/// It sees what was flushed, which may be more than what is published: the caller stops at its revision. Dead records that no
/// rewrite has dropped yet are seen too. At the end of the log it yields `None`, and goes on from there when asked again later.
#[derive(Debug)]
pub struct Scan {
    segments: Arc<Segments>,
    /// The first revision that was not yielded yet.
    next: Revision,
    at: Option<(Arc<Segment>, usize)>,
}

impl Scan {
    pub(crate) fn new(segments: Arc<Segments>, next: Revision) -> Scan {
        Scan { segments, next, at: None }
    }

    /// The next record.
    pub fn advance(&mut self) -> Option<RecordRef<'_>> {
        let (rev, tombstone, loc) = self.step()?;
        let (segment, _) = self.at.as_ref()?;
        Some(RecordRef { rev, tombstone, loc, segment })
    }

    fn step(&mut self) -> Option<(Revision, bool, Loc)> {
        loop {
            let (segment, offset) = match &mut self.at {
                Some(at) => at,
                at @ None => {
                    let segment = Arc::clone(super::read(&self.segments.table).find(self.next)?);
                    let offset = segment.seek(self.next);
                    at.insert((segment, offset))
                }
            };
            // Sealed is asked before the length: a segment that is sealed has its last length.
            let sealed = segment.is_sealed();
            let len = segment.len() as usize;
            while *offset < len {
                let (header, end) = segment.record_at(*offset);
                let start = *offset + RECORD_HEADER_BYTES;
                *offset = end;
                if header.rev >= self.next {
                    self.next = Revision { main: header.rev.main, sub: header.rev.sub + 1 };
                    let loc = Loc { segment: segment.id(), offset: start as u32, len: header.len };
                    return Some((header.rev, header.kind == Kind::Tombstone, loc));
                }
            }
            if !sealed {
                return None;
            }
            // The next segment is looked up by revision, because a rewrite may have replaced this one and its neighbours.
            self.at = None;
        }
    }
}

impl Iterator for Scan {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let found = self.advance()?;
        Some(Record { rev: found.rev, tombstone: found.tombstone, loc: found.loc, value: found.value() })
    }
}
