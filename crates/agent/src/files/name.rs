//! File names derived from untrusted text such as session keys.

/// A readable, stable name that differs for different texts and contains no path separator.
pub fn file_name(text: &str) -> String {
    let plain: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(80).collect();
    // FNV-1a suffices: a name selects only its owner's files, so collisions gain an attacker nothing.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{plain}-{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_distinct_safe_file_names_from_keys() {
        assert!(file_name("agent:main:telegram:dm:7").starts_with("agent_main_telegram_dm_7-"));
        assert_ne!(file_name("a:b"), file_name("a_b"));
        assert!(file_name(&"x/..".repeat(200)).len() < 100);
        assert!(!file_name("../../etc").contains(['/', '.']));
    }
}
