//! Typed headers: one struct per request or response, one file per family.
//!
//! Every value travels as text in the frame's extension fields under the name that Java gives it.
//! Unknown fields are ignored; a missing required field or a value that does not parse is an error
//! that names the field.

use std::fmt::Write as _;

use thiserror::Error;

use crate::ext_fields::ExtFields;

pub mod admin;
pub mod client;
pub mod controller;
pub mod group;
pub mod ha;
pub mod offset;
pub mod pull;
pub mod query;
pub mod route;
pub mod send;
pub mod topic;

/// Why a header cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum HeaderError {
    #[error("the header field {0} is missing")]
    Missing(&'static str),
    #[error("the header field {field} has the value {value:?}, which is not {expected}")]
    Invalid { field: &'static str, value: String, expected: &'static str },
}

/// A typed header.
pub trait Header: Sized {
    /// Adds the fields that are present to `fields`.
    fn encode(&self, fields: &mut ExtFields);

    /// Reads the header.
    ///
    /// # Errors
    /// When a required field is missing or a value does not parse.
    fn decode(fields: &ExtFields) -> Result<Self, HeaderError>;
}

/// A header without fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmptyHeader;

impl Header for EmptyHeader {
    fn encode(&self, _: &mut ExtFields) {}

    fn decode(_: &ExtFields) -> Result<Self, HeaderError> {
        Ok(Self)
    }
}

/// A type that a header field can have.
pub trait FieldValue: Sized {
    /// Appends the text to send to `out`; false to leave the field out.
    fn write_field(&self, out: &mut String) -> bool;

    /// From the received text, `None` when the field is absent.
    ///
    /// # Errors
    /// When the field is required and absent, or its text does not parse.
    fn from_field(field: &'static str, text: Option<&str>) -> Result<Self, HeaderError>;
}

impl FieldValue for String {
    fn write_field(&self, out: &mut String) -> bool {
        out.push_str(self);
        true
    }

    fn from_field(field: &'static str, text: Option<&str>) -> Result<Self, HeaderError> {
        text.map(str::to_owned).ok_or(HeaderError::Missing(field))
    }
}

macro_rules! parsed_field {
    ($($ty:ty: $expected:literal),*) => {$(
        impl FieldValue for $ty {
            fn write_field(&self, out: &mut String) -> bool {
                // Writing to a text cannot fail.
                write!(out, "{self}").is_ok()
            }

            fn from_field(field: &'static str, text: Option<&str>) -> Result<Self, HeaderError> {
                let text = text.ok_or(HeaderError::Missing(field))?;
                text.parse().map_err(|_| HeaderError::Invalid {
                    field,
                    value: text.chars().take(64).collect(),
                    expected: $expected,
                })
            }
        }
    )*};
}
parsed_field!(i32: "a 32-bit integer", i64: "a 64-bit integer");

impl FieldValue for bool {
    fn write_field(&self, out: &mut String) -> bool {
        out.push_str(if *self { "true" } else { "false" });
        true
    }

    /// As Java's `Boolean.parseBoolean`: anything but "true" in any case is false.
    fn from_field(field: &'static str, text: Option<&str>) -> Result<Self, HeaderError> {
        text.map(|text| text.eq_ignore_ascii_case("true")).ok_or(HeaderError::Missing(field))
    }
}

impl<T: FieldValue> FieldValue for Option<T> {
    fn write_field(&self, out: &mut String) -> bool {
        self.as_ref().is_some_and(|value| value.write_field(out))
    }

    /// An empty text counts as absent.
    fn from_field(field: &'static str, text: Option<&str>) -> Result<Self, HeaderError> {
        match text {
            None | Some("") => Ok(None),
            present => T::from_field(field, present).map(Some),
        }
    }
}

/// Declares a header: `field: Type = "wireName"`, optionally `or default` for a field that may be
/// absent though its type is not optional.
macro_rules! header {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $ty:ty = $key:literal $(or $default:expr)?),* $(,)?
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $ty,)*
        }

        impl $crate::header::Header for $name {
            fn encode(&self, fields: &mut $crate::ext_fields::ExtFields) {
                $(fields.push_with($key, |text| {
                    $crate::header::FieldValue::write_field(&self.$field, text)
                });)*
            }

            fn decode(
                fields: &$crate::ext_fields::ExtFields,
            ) -> Result<Self, $crate::header::HeaderError> {
                Ok(Self {
                    $($field: {
                        let text = fields.get($key);
                        $(if text.is_none_or(str::is_empty) { $default } else)?
                        { $crate::header::FieldValue::from_field($key, text)? }
                    },)*
                })
            }
        }
    )*};
}
pub(crate) use header;

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro under test makes public types")]
mod tests {
    use super::*;

    header! {
        /// A header with one field of each kind.
        pub struct Sample {
            name: String = "name",
            count: i32 = "count",
            offset: Option<i64> = "offset",
            order: bool = "order" or false,
        }
    }

    fn check(fields: &[(&'static str, &str)], expected: &Result<Sample, HeaderError>) {
        let fields: ExtFields = fields.iter().map(|(k, v)| (*k, *v)).collect();
        assert_eq!(&Sample::decode(&fields), expected);
    }

    #[test]
    fn fields_are_required_optional_or_have_a_default() {
        let sample = Sample { name: "n".into(), count: -1, offset: None, order: false };
        check(&[("name", "n"), ("count", "-1"), ("other", "x")], &Ok(sample.clone()));
        check(
            &[("name", "n"), ("count", "-1"), ("offset", "9"), ("order", "TRUE")],
            &Ok(Sample { offset: Some(9), order: true, ..sample }),
        );
        check(&[("name", "n")], &Err(HeaderError::Missing("count")));
        let invalid = |field, value: &str, expected| {
            Err(HeaderError::Invalid { field, value: value.into(), expected })
        };
        check(&[("name", "n"), ("count", "x")], &invalid("count", "x", "a 32-bit integer"));
        check(
            &[("name", "n"), ("count", "1"), ("offset", "1.5")],
            &invalid("offset", "1.5", "a 64-bit integer"),
        );
    }

    #[test]
    fn a_header_survives_the_way() {
        let sample = Sample { name: "n".into(), count: 2, offset: Some(i64::MAX), order: true };
        let mut fields = ExtFields::new();
        sample.encode(&mut fields);
        assert_eq!(Sample::decode(&fields), Ok(sample));
    }
}
