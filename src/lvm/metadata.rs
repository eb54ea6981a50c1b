//! The on-disk format of LVM2: label, metadata area header, metadata text. Read only.
