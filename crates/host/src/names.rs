//! How names of hosts are looked up.

/// Has a program that is linked statically look names up in `/etc/hosts` and by DNS, whatever `/etc/nsswitch.conf` says. The other ways that file may name are
/// libraries of the system's own C library, which cannot be loaded into a program that brings another one. To be called before there are threads.
pub fn need_no_libraries() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        // SAFETY: declared as glibc's <nss.h> has it; the crate `libc` does not.
        unsafe extern "C" {
            fn __nss_configure_lookup(database: *const libc::c_char, ways: *const libc::c_char) -> libc::c_int;
        }
        // SAFETY: both are texts that end with a zero byte and live for ever; the C library reads them and keeps nothing of ours.
        let failed = unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
        assert_eq!(failed, 0, "the C library knows both ways of looking up hosts");
    }
}
