//! Comparison of texts in constants, where `==` is not available.

pub const fn equal(one: &str, other: &str) -> bool {
    let one = one.as_bytes();
    let other = other.as_bytes();
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_every_byte_and_the_length() {
        for (one, other, want) in
            [("", "", true), ("slack", "slack", true), ("slack", "slacks", false), ("slack", "slacj", false)]
        {
            assert_eq!(equal(one, other), want, "{one} {other}");
        }
    }
}
