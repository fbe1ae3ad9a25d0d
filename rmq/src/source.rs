//! Where the bodies of messages come from.

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::error::RmqError;

/// Longest line of standard input, in bytes: what brokers take by default.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bodies of messages to send.
pub(crate) enum Source {
    /// These, in turn, until so many were sent.
    Given { bodies: Vec<String>, next: u64, count: u64 },
    /// Numbered ones, filled up to this size.
    MadeUp { size: usize, next: u64, count: u64 },
    /// Lines.
    Lines { reader: Box<dyn AsyncBufRead + Send + Unpin>, line: u64 },
}

impl Source {
    /// What the command line says.
    pub(crate) fn new(bodies: &[String], count: Option<u64>, size: Option<u32>) -> Self {
        if !bodies.is_empty() {
            let count = count.unwrap_or(bodies.len() as u64);
            return Self::Given { bodies: bodies.to_vec(), next: 0, count };
        }
        if count.is_some() || size.is_some() {
            let size = size.unwrap_or(0) as usize;
            return Self::MadeUp { size, next: 0, count: count.unwrap_or(1) };
        }
        Self::Lines { reader: Box::new(BufReader::new(tokio::io::stdin())), line: 0 }
    }

    /// The next bodies, at most `max`; none at the end.
    pub(crate) async fn next(&mut self, max: usize) -> Result<Vec<Vec<u8>>, RmqError> {
        let mut bodies = Vec::with_capacity(max);
        while bodies.len() < max
            && let Some(body) = self.next_body().await?
        {
            bodies.push(body);
        }
        Ok(bodies)
    }

    async fn next_body(&mut self) -> Result<Option<Vec<u8>>, RmqError> {
        match self {
            Self::Given { next, count, .. } | Self::MadeUp { next, count, .. }
                if *next >= *count =>
            {
                Ok(None)
            }
            Self::Given { bodies, next, .. } => {
                let at = usize::try_from(*next % bodies.len() as u64).unwrap_or(0);
                *next += 1;
                Ok(bodies.get(at).map(|body| body.clone().into_bytes()))
            }
            Self::MadeUp { size, next, .. } => {
                *next += 1;
                let mut body = format!("message {next}").into_bytes();
                body.resize((*size).max(body.len()), b'.');
                Ok(Some(body))
            }
            Self::Lines { reader, line } => next_line(reader, line).await,
        }
    }
}

/// The next line that is not empty.
async fn next_line<R: AsyncBufRead + Unpin>(
    reader: &mut R,
    line: &mut u64,
) -> Result<Option<Vec<u8>>, RmqError> {
    loop {
        *line += 1;
        let mut bytes = Vec::new();
        let mut limited = (&mut *reader).take(LINE_BYTES_MAX as u64 + 2);
        limited.read_until(b'\n', &mut bytes).await.map_err(RmqError::Input)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        while bytes.pop_if(|last| *last == b'\n' || *last == b'\r').is_some() {}
        if bytes.len() > LINE_BYTES_MAX {
            return Err(RmqError::LineTooLong { line: *line, limit: LINE_BYTES_MAX });
        }
        if !bytes.is_empty() {
            return Ok(Some(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(mut source: Source) -> Vec<String> {
        let bodies = source.next(100).await.unwrap();
        bodies.into_iter().map(|body| String::from_utf8(body).unwrap()).collect()
    }

    #[tokio::test]
    async fn bodies_are_given_or_made_up() {
        let given = ["a".to_owned(), "b".to_owned()];
        assert_eq!(all(Source::new(&given, None, None)).await, ["a", "b"]);
        assert_eq!(all(Source::new(&given, Some(3), None)).await, ["a", "b", "a"]);
        assert_eq!(all(Source::new(&[], Some(2), None)).await, ["message 1", "message 2"]);
        assert_eq!(all(Source::new(&[], None, Some(12))).await, ["message 1..."]);
    }

    #[tokio::test]
    async fn lines_are_read_and_bounded() {
        let lines = |text: &[u8]| Source::Lines {
            reader: Box::new(std::io::Cursor::new(text.to_vec())),
            line: 0,
        };
        assert_eq!(all(lines(b"one\r\n\ntwo\nthree")).await, ["one", "two", "three"]);
        let mut long = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(lines(&long).next(2).await.unwrap().len(), 1);
        long.push(b'x');
        let error = lines(&long).next(2).await.unwrap_err();
        assert!(matches!(error, RmqError::LineTooLong { line: 1, .. }), "{error}");
    }
}
