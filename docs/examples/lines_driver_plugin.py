from twisted_exec.machines import DriverMaker

framed = DriverMaker("framed", "lines_driver")
