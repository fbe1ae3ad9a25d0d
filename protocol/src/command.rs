//! One request or response.

use bytes::Bytes;

use crate::ext_fields::ExtFields;
use crate::header::{Header, HeaderError};
use crate::request_code::RequestCode;
use crate::response_code::ResponseCode;

/// The version that this implementation says it speaks: the ordinal of `V5_5_0` in Apache's
/// `MQVersion`. Java clients compare it (for instance before they pull with an SQL filter).
pub const CURRENT_VERSION: i32 = 513;

const FLAG_RESPONSE: i32 = 1;
const FLAG_ONEWAY: i32 = 2;

/// How the header of a frame is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SerializeType {
    /// A JSON object, Java's default.
    #[default]
    Json,
    /// The compact binary form.
    RocketMq,
}

/// The language a peer says it is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum LanguageCode {
    Java,
    Cpp,
    Dotnet,
    Python,
    Delphi,
    Erlang,
    Ruby,
    /// Anything that this list does not know.
    Other,
    Http,
    Go,
    Php,
    Oms,
    #[default]
    Rust,
    NodeJs,
}

const LANGUAGES: [(LanguageCode, u8, &str); 14] = [
    (LanguageCode::Java, 0, "JAVA"),
    (LanguageCode::Cpp, 1, "CPP"),
    (LanguageCode::Dotnet, 2, "DOTNET"),
    (LanguageCode::Python, 3, "PYTHON"),
    (LanguageCode::Delphi, 4, "DELPHI"),
    (LanguageCode::Erlang, 5, "ERLANG"),
    (LanguageCode::Ruby, 6, "RUBY"),
    (LanguageCode::Other, 7, "OTHER"),
    (LanguageCode::Http, 8, "HTTP"),
    (LanguageCode::Go, 9, "GO"),
    (LanguageCode::Php, 10, "PHP"),
    (LanguageCode::Oms, 11, "OMS"),
    (LanguageCode::Rust, 12, "RUST"),
    (LanguageCode::NodeJs, 13, "NODE_JS"),
];

impl LanguageCode {
    /// The byte of the binary header.
    pub fn to_byte(self) -> u8 {
        LANGUAGES.iter().find(|(l, _, _)| *l == self).map_or(7, |(_, byte, _)| *byte)
    }

    /// From the byte of the binary header; unknown bytes are `Other`.
    pub fn from_byte(byte: u8) -> Self {
        LANGUAGES.iter().find(|(_, b, _)| *b == byte).map_or(Self::Other, |(l, _, _)| *l)
    }

    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        LANGUAGES.iter().find(|(l, _, _)| *l == self).map_or("OTHER", |(_, _, name)| name)
    }

    /// From the name used in JSON; unknown names are `Other`.
    pub fn from_name(name: &str) -> Self {
        LANGUAGES.iter().find(|(_, _, n)| *n == name).map_or(Self::Other, |(l, _, _)| *l)
    }
}

/// A frame's content: header fields and an opaque body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemotingCommand {
    /// Request code, or response code when [`Self::is_response`].
    pub code: i32,
    /// Language of the sender.
    pub language: LanguageCode,
    /// `MQVersion` ordinal of the sender.
    pub version: i32,
    /// Request id, chosen by the requester and repeated in the response.
    pub opaque: i32,
    /// Bit 0: response. Bit 1: one-way, no response is written.
    pub flag: i32,
    /// Text for people, mostly of an error.
    pub remark: Option<String>,
    /// The typed header, flattened.
    pub ext_fields: ExtFields,
    /// Body, empty when there is none.
    pub body: Bytes,
    /// How this frame's header was, or will be, written.
    pub serialize_type: SerializeType,
}

impl RemotingCommand {
    /// A request with a typed header. The transport sets `opaque`.
    pub fn request(code: RequestCode, header: &impl Header) -> Self {
        let mut request = Self::request_without_header(code);
        header.encode(&mut request.ext_fields);
        request
    }

    /// A request that has no header fields.
    pub fn request_without_header(code: RequestCode) -> Self {
        Self { code: code.0, version: CURRENT_VERSION, ..Self::default() }
    }

    /// A response; the transport sets `opaque` from the request.
    pub fn response(code: ResponseCode, remark: impl Into<Option<String>>) -> Self {
        Self {
            code: code.0,
            version: CURRENT_VERSION,
            flag: FLAG_RESPONSE,
            remark: remark.into(),
            ..Self::default()
        }
    }

    /// A response with code 0.
    pub fn success() -> Self {
        Self::response(ResponseCode::SUCCESS, None)
    }

    /// A response with code 0 and a typed header.
    pub fn success_with(header: &impl Header) -> Self {
        Self::success().with_header(header)
    }

    /// A refusal, with the reason for people.
    pub fn error(code: ResponseCode, remark: impl Into<String>) -> Self {
        Self::response(code, Some(remark.into()))
    }

    /// Adds the fields of a typed header.
    #[must_use]
    pub fn with_header(mut self, header: &impl Header) -> Self {
        header.encode(&mut self.ext_fields);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Marks a request as one that wants no response.
    #[must_use]
    pub fn oneway(mut self) -> Self {
        self.flag |= FLAG_ONEWAY;
        self
    }

    /// Reads the typed header.
    ///
    /// # Errors
    /// When a required field is missing or a value does not parse; names the field.
    pub fn header<H: Header>(&self) -> Result<H, HeaderError> {
        H::decode(&self.ext_fields)
    }

    /// Whether this is a response.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether the sender wants no response.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }

    /// The response code of a response.
    pub fn response_code(&self) -> ResponseCode {
        ResponseCode(self.code)
    }

    /// The request code of a request.
    pub fn request_code(&self) -> RequestCode {
        RequestCode(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_known_by_byte_and_name() {
        for (language, byte, name) in LANGUAGES {
            assert_eq!(LanguageCode::from_byte(byte), language);
            assert_eq!(LanguageCode::from_name(name), language);
            assert_eq!((language.to_byte(), language.name()), (byte, name));
        }
        assert_eq!(LanguageCode::from_byte(200), LanguageCode::Other);
        assert_eq!(LanguageCode::from_name("COBOL"), LanguageCode::Other);
    }
}
