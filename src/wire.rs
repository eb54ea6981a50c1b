//! Stub.
use k8s_openapi::jiff::Timestamp;
/// Port.
pub const PORT: u16 = 9815;
/// Keys.
#[derive(Debug)]
pub struct Keys {
    /// ca
    pub ca: String,
    /// s
    pub source: (String, String),
    /// t
    pub target: (String, String),
}
impl Keys {
    /// make
    pub fn make(_now: Timestamp) -> Keys {
        let two = || (String::new(), String::new());
        Keys { ca: String::new(), source: two(), target: two() }
    }
}
