//! Types that a configuration key may have.

use std::path::PathBuf;
use std::time::Duration;

use super::Range;

/// A type that configuration text is parsed into. Numbers are in the unit that Java's
/// configuration uses: plain integers, milliseconds for [`Duration`].
pub trait Value: Sized {
    /// `None` if the text is no such value.
    fn parse(text: &str) -> Option<Self>;

    /// The text that [`Value::parse`] reads back.
    fn print(&self) -> String;

    /// What a value may be, for people.
    fn expected(range: Option<Range>) -> String;

    /// The number that a [`Range`] bounds, if this type has one.
    fn number(&self) -> Option<i64> {
        None
    }
}

/// Parses, checks the range and assigns; `false` (and no change) if the text is not allowed.
pub fn assign<T: Value>(field: &mut T, text: &str, range: Option<Range>) -> bool {
    let Some(value) = T::parse(text) else { return false };
    if let (Some(range), Some(number)) = (range, value.number())
        && !(range.min..=range.max).contains(&number)
    {
        return false;
    }
    *field = value;
    true
}

fn bounds(what: &str, min: impl std::fmt::Display, max: impl std::fmt::Display) -> String {
    format!("{what} from {min} to {max}")
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn parse(text: &str) -> Option<Self> {
                text.trim().parse().ok()
            }

            fn print(&self) -> String {
                self.to_string()
            }

            fn expected(range: Option<Range>) -> String {
                match range {
                    Some(Range { min, max: i64::MAX }) => format!("an integer of {min} or more"),
                    Some(Range { min, max }) => bounds("an integer", min, max),
                    None => bounds("an integer", <$type>::MIN, <$type>::MAX),
                }
            }

            fn number(&self) -> Option<i64> {
                // Only numbers above i64::MAX do not fit; no declared range reaches there.
                Some(i64::try_from(*self).unwrap_or(i64::MAX))
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, usize, i32, i64);

impl Value for Duration {
    fn parse(text: &str) -> Option<Self> {
        text.trim().parse().ok().map(Self::from_millis)
    }

    fn print(&self) -> String {
        self.as_millis().to_string()
    }

    fn expected(range: Option<Range>) -> String {
        match range {
            Some(Range { min, max: i64::MAX }) => format!("{min} or more milliseconds"),
            Some(Range { min, max }) => format!("{} milliseconds", bounds("", min, max).trim()),
            None => "a number of milliseconds".to_owned(),
        }
    }

    fn number(&self) -> Option<i64> {
        Some(i64::try_from(self.as_millis()).unwrap_or(i64::MAX))
    }
}

impl Value for bool {
    fn parse(text: &str) -> Option<Self> {
        // Java takes everything but "true" for false; a typing error must not switch things off.
        match text.trim() {
            text if text.eq_ignore_ascii_case("true") => Some(true),
            text if text.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        }
    }

    fn print(&self) -> String {
        self.to_string()
    }

    fn expected(_: Option<Range>) -> String {
        "true or false".to_owned()
    }
}

impl Value for String {
    fn parse(text: &str) -> Option<Self> {
        Some(text.trim().to_owned())
    }

    fn print(&self) -> String {
        self.clone()
    }

    fn expected(_: Option<Range>) -> String {
        "text".to_owned()
    }
}

impl Value for PathBuf {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self::from(text))
    }

    fn print(&self) -> String {
        self.display().to_string()
    }

    fn expected(_: Option<Range>) -> String {
        "a path".to_owned()
    }
}

/// An empty text is `None`: the key is derived from others or has no value.
impl<T: Value> Value for Option<T> {
    fn parse(text: &str) -> Option<Self> {
        if text.trim().is_empty() { Some(None) } else { T::parse(text).map(Some) }
    }

    fn print(&self) -> String {
        self.as_ref().map(T::print).unwrap_or_default()
    }

    fn expected(range: Option<Range>) -> String {
        format!("{}, or nothing", T::expected(range))
    }

    fn number(&self) -> Option<i64> {
        self.as_ref().and_then(T::number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: Value + Default>(text: &str, range: Option<(i64, i64)>, expected: Option<&str>) {
        let mut field = T::default();
        let range = range.map(|(min, max)| Range { min, max });
        let assigned = assign(&mut field, text, range);
        assert_eq!(assigned.then(|| field.print()).as_deref(), expected, "{text:?}");
    }

    #[test]
    fn values() {
        check::<u16>("9876", None, Some("9876"));
        check::<u16>(" 9876 ", None, Some("9876"));
        check::<u16>("70000", None, None);
        check::<u16>("0", Some((1, 10)), None);
        check::<u16>("10", Some((1, 10)), Some("10"));
        check::<u64>("18446744073709551615", None, Some("18446744073709551615"));
        check::<i32>("-1", Some((-1, 5)), Some("-1"));
        check::<i32>("", None, None);
        check::<bool>("TRUE", None, Some("true"));
        check::<bool>("yes", None, None);
        check::<Duration>("1500", Some((0, 2000)), Some("1500"));
        check::<Duration>("-1", None, None);
        check::<Duration>("10s", None, None);
        check::<PathBuf>("/data", None, Some("/data"));
        check::<PathBuf>(" ", None, None);
        check::<Option<u16>>("", Some((1, 9)), Some(""));
        check::<Option<u16>>("10", Some((1, 9)), None);
    }

    #[test]
    fn expectations() {
        let range = Some(Range { min: 1, max: 9 });
        assert_eq!(u16::expected(None), "an integer from 0 to 65535");
        assert_eq!(u16::expected(range), "an integer from 1 to 9");
        assert_eq!(Duration::expected(range), "from 1 to 9 milliseconds");
        assert_eq!(<Option<u16>>::expected(range), "an integer from 1 to 9, or nothing");
        let open = Some(Range { min: 1, max: i64::MAX });
        assert_eq!(u64::expected(open), "an integer of 1 or more");
    }
}
