//! Declares the code newtypes.

/// A newtype over `i32` with a constant for each code that Apache's source names.
macro_rules! codes {
    ($(#[$meta:meta])* $type:ident { $(($name:ident, $value:literal),)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(pub i32);

        #[allow(missing_docs)]
        impl $type {
            $(pub const $name: Self = Self($value);)*

            /// The name that Apache's source gives to the code.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{} {name}", self.0),
                    None => write!(f, "{}", self.0),
                }
            }
        }
    };
}
pub(crate) use codes;
