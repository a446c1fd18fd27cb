//! Simple arithmetic: `12 * (3 + 4)`.

const DEPTH: u32 = 50;

/// `None` if the text is no calculation.
pub(super) fn evaluate(words: &str) -> Option<String> {
    let lower = words.trim().to_lowercase();
    let mut sum = lower.trim_end_matches(['?', '=', '.', ' ']);
    for opening in ["what is", "what's", "calculate", "compute", "how much is", "please"] {
        sum = sum.strip_prefix(opening).unwrap_or(sum).trim();
    }
    let sum = sum.replace('×', "*").replace('÷', "/").replace(" x ", " * ").replace(" plus ", " + ");
    let sum = sum.replace(" minus ", " - ").replace(" times ", " * ").replace(" divided by ", " / ");
    let digits = sum.chars().any(|c| c.is_ascii_digit());
    let signs = sum.chars().any(|c| "+-*/".contains(c));
    if !digits
        || !signs
        || sum.len() > 200
        || !sum.chars().all(|c| c.is_ascii_digit() || "+-*/(). ".contains(c))
    {
        return None;
    }
    let letters: Vec<char> = sum.chars().filter(|c| *c != ' ').collect();
    let mut reader = ExpressionParser { letters: &letters, at: 0, depth: 0 };
    let value = reader.sum()?;
    if reader.at < letters.len() {
        return None;
    }
    if !value.is_finite() {
        return Some("That has no answer: nothing can be divided by zero.".to_owned());
    }
    let shown = (value * 1e6).round() / 1e6;
    Some(format!("{} = **{shown}**", sum.trim()))
}

struct ExpressionParser<'a> {
    letters: &'a [char],
    at: usize,
    depth: u32,
}

impl ExpressionParser<'_> {
    fn next_if(&mut self, wanted: &[char]) -> Option<char> {
        let found = self.letters.get(self.at).copied().filter(|c| wanted.contains(c))?;
        self.at += 1;
        Some(found)
    }

    fn sum(&mut self) -> Option<f64> {
        let mut value = self.product()?;
        while let Some(sign) = self.next_if(&['+', '-']) {
            let other = self.product()?;
            value = if sign == '+' { value + other } else { value - other };
        }
        Some(value)
    }

    fn product(&mut self) -> Option<f64> {
        let mut value = self.factor()?;
        while let Some(sign) = self.next_if(&['*', '/']) {
            let other = self.factor()?;
            value = if sign == '*' { value * other } else { value / other };
        }
        Some(value)
    }

    fn factor(&mut self) -> Option<f64> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let value = if self.next_if(&['-']).is_some() {
            -self.factor()?
        } else if self.next_if(&['(']).is_some() {
            let inner = self.sum()?;
            self.next_if(&[')'])?;
            inner
        } else {
            self.number()?
        };
        self.depth -= 1;
        Some(value)
    }

    fn number(&mut self) -> Option<f64> {
        let rest = &self.letters[self.at..];
        let length = rest.iter().take_while(|c| c.is_ascii_digit() || **c == '.').count();
        self.at += length;
        rest[..length].iter().collect::<String>().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_and_evaluates_sums() {
        for (words, want) in [
            ("2+2", Some("2+2 = **4**")),
            ("What is 12 * (3 + 4)?", Some("12 * (3 + 4) = **84**")),
            ("7 divided by 2", Some("7 / 2 = **3.5**")),
            ("-3 - -4", Some("-3 - -4 = **1**")),
            ("1/0", Some("That has no answer: nothing can be divided by zero.")),
            ("2 +", None),
            ("room 12", None),
            ("2026", None),
            ("hello - goodbye", None),
        ] {
            assert_eq!(evaluate(words).as_deref(), want, "{words}");
        }
        assert_eq!(evaluate(&"(".repeat(99)), None);
    }
}
