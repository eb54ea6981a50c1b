//! Numbers that a seed determines.

/// The same seed gives the same numbers.
pub struct Dice(u64);

impl Dice {
    pub fn of(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        let number = usize::try_from(self.next() >> 33).expect("31 bits");
        choices[number % choices.len()]
    }
}
