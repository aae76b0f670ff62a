! Allocates by a targets file on the stand-in driver.
program allocate_by_targets
    use buddy
    implicit none
    interface
        subroutine stub_current(on) bind(c, name="stubCurrent")
            import
            integer(c_int), value :: on
        end subroutine
    end interface
    type(c_ptr) :: targets = c_null_ptr
    type(buddy_statistics) :: found
    integer(buddy_handle) :: heat
    character(len=4096) :: path
    call stub_current(1_c_int)
    if (buddy_targets_open("none.toml"//c_null_char, targets) /= 1) error stop 2
    print '(a)', buddy_message()
    call get_command_argument(1, path)
    call buddy_check(buddy_targets_open(trim(path)//c_null_char, targets), "open")
    call buddy_check(buddy_targets_malloc(targets, "heat"//c_null_char, 0_c_size_t, heat), "heat")
    call buddy_check(buddy_stats(heat, found, c_null_ptr), "stats")
    print '(i0,1x,i0,1x,i0)', buddy_targets_count(targets), found%bytes, found%entries
    call buddy_check(buddy_free(heat), "free")
    call buddy_targets_close(targets)
end program
