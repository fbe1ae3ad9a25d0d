//! Kubernetes quantities: `20Gi`, `500m`, `1e3`.
//!
//! Format: a signed decimal number, then a binary suffix (Ki Mi Gi Ti Pi Ei), a decimal suffix
//! (n u m k M G T P E) or a decimal exponent (e3, E3).

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{Schema, SchemaGenerator, json_schema};

/// A quantity in billionths of its unit: comparable, exact for what Kubernetes keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

const NANO: i128 = 1_000_000_000;
/// More digits than this is no quantity that Kubernetes could keep.
const DIGITS_MAX: usize = 20;

impl Quantity {
    /// Reads a quantity; `None` when the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits_bad = whole.len() + fraction.len() > DIGITS_MAX || fraction.contains('.');
        if digits_bad || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
        let (up, down) = scale(suffix)?;
        let shift = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let value = mantissa.checked_mul(up)?.checked_mul(NANO)?;
        Some(Self(sign * value.checked_div(down.checked_mul(shift)?)?))
    }

    /// Whole units, rounded down, when they fit.
    pub fn units(self) -> Option<u64> {
        u64::try_from(self.0.div_euclid(NANO)).ok()
    }

    /// Whether it is above zero.
    pub fn is_positive(self) -> bool {
        self.0 > 0
    }
}

/// What a suffix multiplies and divides by.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let power = |base: i128, exponent: u32| base.checked_pow(exponent).map(|up| (up, 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, NANO)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => power(1000, 1),
        "M" => power(1000, 2),
        "G" => power(1000, 3),
        "T" => power(1000, 4),
        "P" => power(1000, 5),
        "E" => power(1000, 6),
        "Ki" => power(1024, 1),
        "Mi" => power(1024, 2),
        "Gi" => power(1024, 3),
        "Ti" => power(1024, 4),
        "Pi" => power(1024, 5),
        "Ei" => power(1024, 6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let size = 10_i128.checked_pow(exponent.unsigned_abs())?;
            Some(if exponent < 0 { (1, size) } else { (size, 1) })
        }
    }
}

/// The text of a quantity that YAML may have read as a number.
pub fn text(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

/// Schema of a quantity that may be written as a number (`cpu: 1`) or a string (`cpu: 500m`).
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "nullable": true,
        "maxLength": 32,
        "pattern": "^([0-9]+|[0-9]+\\.[0-9]*|\\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?$",
        "x-kubernetes-int-or-string": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_quantities() {
        for (left, right) in [
            ("1Gi", "1024Mi"),
            ("1000m", "1"),
            ("1.5", "1500m"),
            (".5", "500m"),
            ("1e3", "1k"),
            ("12E-1", "1.2"),
            ("2E", "2000P"),
            ("+1", "1"),
            ("-0", "0"),
        ] {
            assert_eq!(Quantity::parse(left), Quantity::parse(right), "{left} {right}");
            assert!(Quantity::parse(left).is_some(), "{left}");
        }
    }

    #[test]
    fn order_and_units() {
        assert!(Quantity::parse("2Gi") > Quantity::parse("2G"));
        assert_eq!(Quantity::parse("20Gi").unwrap().units(), Some(20 << 30));
        assert_eq!(Quantity::parse("1500m").unwrap().units(), Some(1));
        assert!(!Quantity::parse("0").unwrap().is_positive());
    }

    #[test]
    fn what_is_none() {
        for text in
            ["", "Gi", "1GiB", "1 Gi", "1.2.3", ".", "1e", "1e99", "x", "123456789012345678901"]
        {
            assert_eq!(Quantity::parse(text), None, "{text:?}");
        }
    }
}
