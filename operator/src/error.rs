//! Why a reconcile did not come to its end.

use crate::diagnosis::quote;

/// Why a reconcile did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a request, or could not be reached.
    #[error("cannot {action} {object}: {source}")]
    Api {
        /// What was tried: get, list, apply, delete, patch, write the status of.
        action: &'static str,
        /// Kind and name.
        object: String,
        /// What the API server or the connection said.
        source: Box<kube::Error>,
    },
    /// An object that we would make exists and is not ours.
    #[error("{object} already exists and does not belong to {owner}: rename or delete it")]
    Foreign {
        /// Kind and name.
        object: String,
        /// Who should own it.
        owner: String,
    },
    /// A value that cannot be written as JSON.
    #[error("{object} cannot be written as JSON: {source}")]
    Json {
        /// Kind and name.
        object: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The resource lacks what every stored resource has.
    #[error("{0} has no name, namespace or uid")]
    Anonymous(&'static str),
    /// The pod of a master is being made.
    #[error("pod {0} has no address yet")]
    NoAddress(String),
    /// It took too long; it will be tried again.
    #[error("not done within {} s", .0.as_secs())]
    Slow(std::time::Duration),
    /// A bug: the reconcile panicked. Only this resource is affected.
    #[error("the operator has a bug that this resource meets: {0}")]
    Panicked(String),
}

impl Error {
    /// Wraps what a request said.
    pub fn api(
        action: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(kube::Error) -> Self {
        let object = object.into();
        move |source| Self::Api { action, object, source: Box::new(source) }
    }

    /// Kind of the error, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Api { .. } if self.is_conflict() => "conflict",
            Self::Api { .. } if self.is_refusal() => "refused",
            Self::Api { .. } => "api",
            Self::Foreign { .. } => "foreign",
            Self::Json { .. } => "json",
            Self::Anonymous(_) => "anonymous",
            Self::NoAddress(_) => "no-address",
            Self::Slow(_) => "slow",
            Self::Panicked(_) => "panic",
        }
    }

    fn code(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }

    /// Somebody else wrote at the same time: trying again at once is right.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// The request will be refused again until somebody changes something, so people must be told.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Foreign { .. })
            || matches!(self.code(), Some(400 | 403 | 405 | 413 | 415 | 422))
    }

    /// What people are told: without the words of the HTTP client around it.
    pub fn sentence(&self) -> String {
        if let Self::Api { action, object, source } = self
            && let kube::Error::Api(status) = source.as_ref()
        {
            return format!("Cannot {action} {object}: {}", quote(&status.message));
        }
        let text = self.to_string();
        let mut characters = text.chars();
        characters.next().map(|c| c.to_uppercase().chain(characters).collect()).unwrap_or_default()
    }
}
