//! Durations and times as people write them.

use std::time::Duration;

use jiff::Timestamp;

const UNITS: [(&str, f64); 5] =
    [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];

/// Reads `500ms`, `10s`, `1.5m`, `2h`, `1d`; a plain number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let seconds = match unit.trim() {
        "" => Some(1.0),
        unit => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds),
    };
    let number: Option<f64> = number.parse().ok();
    let wrong = || format!("{text:?} is no duration: write it like 500ms, 10s, 2m or 1h");
    let seconds = seconds.zip(number).map(|(unit, number)| unit * number).ok_or_else(wrong)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Milliseconds since the epoch as UTC, or `-` for none.
pub(crate) fn format_millis(millis: i64) -> String {
    match Timestamp::from_millisecond(millis) {
        Ok(time) if millis > 0 => format!("{time:.3}"),
        _ => "-".to_owned(),
    }
}

/// Reads a point in time: RFC 3339, milliseconds since the epoch, or a duration that has passed.
pub(crate) fn parse_time(text: &str, now: Timestamp) -> Result<i64, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_millisecond());
    }
    if text.len() > 9
        && let Ok(millis) = text.parse::<i64>()
    {
        return Ok(millis);
    }
    let ago = parse_duration(text).ok().and_then(|ago| now.checked_sub(ago).ok());
    ago.map(Timestamp::as_millisecond).ok_or_else(|| {
        format!(
            "{text:?} is no time: write it like 2026-11-30T12:00:00Z, as milliseconds since the \
             epoch, or how long ago, like 10m"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, millis) in [("500ms", 500), ("10s", 10_000), ("1.5m", 90_000), ("2", 2_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "10x", "-1s", "1e400s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_and_written() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        let day = 1_000_000_000_000;
        for (text, millis) in [
            ("2001-09-09T01:46:40Z", day),
            ("2001-09-09T03:46:40+02:00", day),
            ("1000000000123", day + 123),
            ("10m", day - 600_000),
        ] {
            assert_eq!(parse_time(text, now), Ok(millis), "{text}");
        }
        assert!(parse_time("yesterday", now).is_err());
        assert_eq!(format_millis(day + 123), "2001-09-09T01:46:40.123Z");
        assert_eq!(format_millis(0), "-");
    }
}
