/* Reading the memory of the program. */
static __always_inline u64 user_u64(u64 address)
{
	u64 value = 0;
	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}
