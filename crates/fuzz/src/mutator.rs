//! Changes inputs: reproducible from a seed, without coverage.

/// Pieces on which parsers decide.
const TOKENS: [&[u8]; 28] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b"null",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"\\ud800",
    b"\0",
    b"\n",
    b"\r\n",
    b"data: ",
    b"```",
    b"|",
    b"*",
    b"$(",
    b"`",
    b"'",
    b"<<EOF",
    b"\xff",
    b"\xf0\x9f\x92\xa9",
    b"&a",
    b"*a",
    b"${A:-",
    b": ",
];

#[derive(Debug)]
pub struct Mutator(u64);

impl Mutator {
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A variant of one of the seeds.
    pub fn next(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            self.change(&mut input, seeds);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let end = at + self.below((input.len() - at).min(32) + 1);
        match self.below(6) {
            0 => drop(input.drain(at..end)),
            1 => input.extend_from_within(at..end),
            2 => {
                let token = TOKENS[self.below(TOKENS.len())];
                drop(input.splice(at..end, token.iter().copied()));
            }
            3 => {
                let other = &seeds[self.below(seeds.len())];
                let start = self.below(other.len() + 1);
                drop(input.splice(at.., other[start..].iter().copied()));
            }
            4 => {
                let repeated = input[at..end].repeat(1 + self.below(200));
                drop(input.splice(at..end, repeated));
            }
            _flip => {
                let bit = self.below(8);
                input[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << bit);
            }
        }
        input.truncate(1 << 16);
    }

    /// Xorshift: quality does not matter here.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 32).unwrap_or_default() % limit
    }
}
