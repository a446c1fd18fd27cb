//! Hexadecimal text.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// In either case; `None`: not hexadecimal.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<_> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let bytes = digits.len().is_multiple_of(2).then(|| digits.chunks(2))?;
    bytes.map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        assert_eq!(hex(&[0, 0x1f, 0xff]), "001fff");
        assert_eq!(unhex("001fFF"), Some(Vec::from([0, 0x1f, 0xff])));
        for wrong in ["0", "0g", "+1", "é0", " 00"] {
            assert_eq!(unhex(wrong), None, "{wrong:?}");
        }
    }
}
