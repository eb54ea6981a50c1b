//! csi
