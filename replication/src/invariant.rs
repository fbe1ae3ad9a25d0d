//! What must hold in every moment.
