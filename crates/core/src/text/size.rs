//! Human-readable byte counts.

use alloc::format;
use alloc::string::String;

/// `"1023 bytes"`, `"118 KB"`, `"2.5 MB"`, `"66.7 GB"`; units of 1,024, rounded down to a tenth above kilobytes.
pub fn format_bytes(bytes: u64) -> String {
    let tenths = |shift: u32| (bytes >> shift, ((bytes & ((1 << shift) - 1)) * 10) >> shift);
    match bytes {
        0..0x400 => format!("{bytes} bytes"),
        0x400..0x10_0000 => format!("{} KB", bytes.div_ceil(1024)),
        0x10_0000..0x4000_0000 => {
            let (whole, tenth) = tenths(20);
            format!("{whole}.{tenth} MB")
        }
        0x4000_0000.. => {
            let (whole, tenth) = tenths(30);
            format!("{whole}.{tenth} GB")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_the_unit_by_magnitude() {
        for (bytes, want) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KB"),
            (5 << 19, "2.5 MB"),
            ((1 << 30) - 1, "1023.9 MB"),
            (3 << 29, "1.5 GB"),
            (5 << 40, "5120.0 GB"),
            (u64::MAX, "17179869183.9 GB"),
        ] {
            assert_eq!(format_bytes(bytes), want);
        }
    }
}
