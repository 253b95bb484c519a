//! Bytes as a row of choices.

/// What is left of an input. When nothing is, every choice is the first one.
pub(crate) struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Choices<'a> {
        Choices { rest: input }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((first, rest)) => {
                self.rest = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let wide = if bound > 256 { usize::from(self.byte()) << 8 } else { 0 };
        (wide | usize::from(self.byte())) % bound.max(1)
    }

    /// True in `of_256` of 256 cases; not when nothing is left.
    pub(crate) fn chance(&mut self, of_256: u16) -> bool {
        !self.is_empty() && u16::from(self.byte()) < of_256
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// At most `count` bytes as they are.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// A number of any size, small ones and those at the edges more often.
    pub(crate) fn number(&mut self) -> u64 {
        match self.byte() % 16 {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => i64::MAX as u64,
            4 => i64::MIN as u64,
            5 => u64::from(u32::MAX),
            6 => i32::MAX as u64,
            7 => u64::MAX >> 2,
            8 => 1 << (self.byte() % 64),
            9 => self.take(8).iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
            10 | 11 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            _ => u64::from(self.byte()),
        }
    }
}
