//! Delay levels: the value of `messageDelayLevel`, such as `1s 5s 10s 30s 1m`.

/// What is wrong with a `messageDelayLevel`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DelayLevelError {
    /// A level is not a number with a unit.
    #[error("delay level {0:?} is not a number followed by s, m, h or d")]
    Level(String),
    /// There is no level.
    #[error("there is no delay level")]
    Empty,
}

/// The delays by level; levels count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayLevels {
    delays_ms: Vec<i64>,
}

impl DelayLevels {
    /// Apache's eighteen levels.
    pub const DEFAULT: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

    /// Reads a list of levels separated by spaces.
    ///
    /// # Errors
    /// A level that is not a number with a unit, or no level at all.
    pub fn parse(text: &str) -> Result<Self, DelayLevelError> {
        let delay = |level: &str| {
            let unit_ms = match level.chars().last()? {
                's' => 1_000,
                'm' => 60_000,
                'h' => 3_600_000,
                'd' => 86_400_000,
                _ => return None,
            };
            let number = level.get(..level.len() - 1)?.parse::<u32>().ok()?;
            i64::from(number).checked_mul(unit_ms)
        };
        let delays_ms = text
            .split_whitespace()
            .map(|level| delay(level).ok_or_else(|| DelayLevelError::Level(level.to_owned())))
            .collect::<Result<Vec<_>, _>>()?;
        if delays_ms.is_empty() {
            return Err(DelayLevelError::Empty);
        }
        Ok(Self { delays_ms })
    }

    /// The highest level.
    #[must_use]
    pub fn max_level(&self) -> i32 {
        i32::try_from(self.delays_ms.len()).unwrap_or(i32::MAX)
    }

    /// The delay of a level in milliseconds; a higher level counts as the highest, 0 and below have
    /// no delay.
    #[must_use]
    pub fn delay_ms(&self, level: i32) -> Option<i64> {
        let index = usize::try_from(level.min(self.max_level()).checked_sub(1)?).ok()?;
        self.delays_ms.get(index).copied()
    }
}

impl Default for DelayLevels {
    fn default() -> Self {
        Self::parse(Self::DEFAULT).expect("the default levels are well-formed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        let levels = DelayLevels::default();
        assert_eq!(levels.max_level(), 18);
        let table = [
            (1, Some(1_000)),
            (5, Some(60_000)),
            (18, Some(7_200_000)),
            (19, Some(7_200_000)),
            (0, None),
            (-1, None),
            (i32::MIN, None),
        ];
        for (level, delay) in table {
            assert_eq!(levels.delay_ms(level), delay, "{level}");
        }
        for text in ["1x", "s", "-1s", "1 s", "é"] {
            assert!(matches!(DelayLevels::parse(text), Err(DelayLevelError::Level(_))), "{text}");
        }
        assert_eq!(DelayLevels::parse(" "), Err(DelayLevelError::Empty));
    }
}
